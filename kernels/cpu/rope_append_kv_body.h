#pragma once

#include "kernels/check.h"
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h. The pool holds f16.

namespace headrace::kernels {
namespace {

// (a, b) -> (fma(b, -s, a c), fma(a, s, b c)), eight pairs at a time.
LANES_FN Lanes rotate_pairs(Lanes x, Lanes rope, Lanes signs) {
  return fma(swap_pairs(x), mul(odd_twice(rope), signs), mul(x, even_twice(rope)));
}

// Whole pairs: n values of a head and as many of the table.
void rotate_part(float* x, const float* rope, int32_t n) {
  alignas(64) static const float kSigns[16] = {-1, 1, -1, 1, -1, 1, -1, 1,
                                               -1, 1, -1, 1, -1, 1, -1, 1};
  const Lanes signs = load(kSigns);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(x + i, rotate_pairs(load(x + i), load(rope + i), signs));
  if (i < n) {
    const int left = n - i;
    store(x + i, rotate_pairs(load(x + i, left), load(rope + i, left), signs), left);
  }
}

// Where a row's k and v of one KV head go.
struct AppendTo {
  uint16_t* head;  // K [head_dim][block_tokens], V [block_tokens][head_dim]
  int32_t dim, tokens, t;
};

AppendTo append_to(const RopeAppendKv& op, const StepRow& row, int32_t kv_head) {
  const KvLayout& l = op.kv.layout;
  const uint32_t block = row.blocks[row.position / l.block_tokens];
  return {reinterpret_cast<uint16_t*>(op.kv.head(block, op.layer, kv_head)), l.head_dim,
          l.block_tokens, row.position % l.block_tokens};
}

// Dims [d, d + n) of k: a piece of a column.
void append_key(const AppendTo& to, const float* k, int32_t d, int32_t n) {
  alignas(32) uint16_t half[16];
  for (int32_t i = 0; i < n; i += 16) {
    const int some = n - i < 16 ? n - i : 16;
    store_half(half, some == 16 ? load(k + i) : load(k + i, some));
    for (int j = 0; j < some; ++j) to.head[int64_t{d + i + j} * to.tokens + to.t] = half[j];
  }
}

// Of v: a piece of a row.
void append_value(const AppendTo& to, const float* v, int32_t d, int32_t n) {
  uint16_t* row = to.head + (int64_t{to.tokens} + to.t) * to.dim + d;
  alignas(32) uint16_t half[16];
  for (int32_t i = 0; i < n; i += 16) {
    const int some = n - i < 16 ? n - i : 16;
    store_half(half, some == 16 ? load(v + i) : load(v + i, some));
    __builtin_memcpy(row + i, half, sizeof(uint16_t) * static_cast<size_t>(some));
  }
}

// Dims [d, d + n) of head h of q, k and v side by side; d and n are even.
void rope_append_part(const RopeAppendKv& op, const StepRow& row, float* x, int32_t h, int32_t d,
                      int32_t n) {
  const int32_t keys = op.heads, values = keys + op.kv.layout.kv_heads;
  if (h >= values) return append_value(append_to(op, row, h - values), x, d, n);
  const int32_t turned = op.rotated - d < n ? op.rotated - d : n;
  if (turned > 0) rotate_part(x, op.rope + int64_t{row.position} * op.rotated + d, turned);
  if (h >= keys) append_key(append_to(op, row, h - keys), x, d, n);
}

// Columns [begin, end) of row r of qkv.
void rope_append_columns(const RopeAppendKv& op, int64_t r, int32_t begin, int32_t end) {
  const int32_t dim = op.kv.layout.head_dim;
  float* qkv = op.qkv + r * (int64_t{op.heads} + 2 * op.kv.layout.kv_heads) * dim;
  for (int32_t n = begin; n < end;) {
    const int32_t h = n / dim, d = n % dim;
    const int32_t some = end - n < dim - d ? end - n : dim - d;
    rope_append_part(op, op.step[r], qkv + n, h, d, some);
    n += some;
  }
}

void rotate_results(const RopeAppendKv& op, const TileResults& results) {
  for (int t = 0; t < results.tokens; t++)
    rope_append_columns(op, results.token + t, results.row, results.row + results.rows);
}

void rope_append_kv_body(const RopeAppendKv& op, ThreadPool& pool) {
  KERNELS_CHECK(op.kv.layout.type == KvType::kF16 && op.kv.layout.order == KvOrder::kLanes);
  constexpr int64_t kGrainRows = 4;
  const int32_t width = (op.heads + 2 * op.kv.layout.kv_heads) * op.kv.layout.head_dim;
  auto rows = [&op, width](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) rope_append_columns(op, r, 0, width);
  };
  parallel_for(pool, op.rows, kGrainRows, rows);
}

}  // namespace
}  // namespace headrace::kernels

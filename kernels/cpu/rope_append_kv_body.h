#pragma once

#include "kernels/check.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h. The pool holds f16.

namespace headrace::kernels {
namespace {

// (a, b) -> (fma(b, -s, a c), fma(a, s, b c)), eight pairs at a time.
LANES_FN Lanes rotate_pairs(Lanes x, Lanes rope, Lanes signs) {
  return fma(swap_pairs(x), mul(odd_twice(rope), signs), mul(x, even_twice(rope)));
}

void rotate_head(float* head, const float* rope, int32_t rotated) {
  alignas(64) static const float kSigns[16] = {-1, 1, -1, 1, -1, 1, -1, 1,
                                               -1, 1, -1, 1, -1, 1, -1, 1};
  const Lanes signs = load(kSigns);
  int32_t i = 0;
  for (; i + 16 <= rotated; i += 16) {
    store(head + i, rotate_pairs(load(head + i), load(rope + i), signs));
  }
  if (i < rotated) {
    const int n = rotated - i;
    store(head + i, rotate_pairs(load(head + i, n), load(rope + i, n), signs), n);
  }
}

// k goes to a column of [head_dim][block_tokens], v to a row of [block_tokens][head_dim].
void append_head(const float* k, const float* v, int32_t dim, int32_t tokens, int32_t t,
                 uint16_t* to) {
  uint16_t* to_v = to + (int64_t{tokens} + t) * dim;
  alignas(32) uint16_t half[16];
  for (int32_t d = 0; d < dim; d += 16) {
    const int n = dim - d < 16 ? dim - d : 16;
    store_half(half, n == 16 ? load(k + d) : load(k + d, n));
    for (int j = 0; j < n; ++j) to[int64_t{d + j} * tokens + t] = half[j];
    store_half(half, n == 16 ? load(v + d) : load(v + d, n));
    __builtin_memcpy(to_v + d, half, sizeof(uint16_t) * static_cast<size_t>(n));
  }
}

void rope_append_row(const RopeAppendKv& op, int64_t r) {
  const KvLayout& l = op.kv.layout;
  const StepRow row = op.step[r];
  float* q = op.qkv + r * (int64_t{op.heads} + 2 * l.kv_heads) * l.head_dim;
  float* k = q + int64_t{op.heads} * l.head_dim;
  const float* v = k + int64_t{l.kv_heads} * l.head_dim;
  const float* rope = op.rope + int64_t{row.position} * op.rotated;
  const int32_t heads = op.heads + l.kv_heads;
  for (int32_t h = 0; h < heads; ++h) rotate_head(q + int64_t{h} * l.head_dim, rope, op.rotated);
  const uint32_t block = row.blocks[row.position / l.block_tokens];
  for (int32_t h = 0; h < l.kv_heads; ++h) {
    append_head(k + int64_t{h} * l.head_dim, v + int64_t{h} * l.head_dim, l.head_dim,
                l.block_tokens, row.position % l.block_tokens,
                reinterpret_cast<uint16_t*>(op.kv.head(block, op.layer, h)));
  }
}

void rope_append_kv_body(const RopeAppendKv& op, ThreadPool& pool) {
  KERNELS_CHECK(op.kv.layout.type == KvType::kF16 && op.kv.layout.order == KvOrder::kLanes);
  constexpr int64_t kGrainRows = 4;
  auto rows = [&op](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) rope_append_row(op, r);
  };
  parallel_for(pool, op.rows, kGrainRows, rows);
}

}  // namespace
}  // namespace headrace::kernels

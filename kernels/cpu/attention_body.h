#pragma once

#include "kernels/check.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/quantize.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

// Scores are kept in units of log2 so that weights are powers of two.
void load_queries(const Attention& op, const AttentionTile& tile, float* to) {
  const KvLayout& l = op.kv.layout;
  const int32_t group = op.heads / l.kv_heads, dim = l.head_dim;
  const Lanes scale = splat(1.44269504f / square_root(static_cast<float>(dim)));
  for (int32_t r = 0; r < tile.rows; ++r) {
    const float* q = op.qkv + int64_t{tile.row + r} * (op.heads + 2 * l.kv_heads) * dim +
                     int64_t{tile.kv_head} * group * dim;
    for (int32_t g = 0; g < group; ++g, q += dim, to += padded_dim(dim)) {
      int32_t d = 0;
      for (; d + 16 <= dim; d += 16) store(to + d, mul(load(q + d), scale));
      if (d < dim) store(to + d, mul(load(q + d, dim - d), scale));
    }
  }
}

// merged := merged joined with the partial of the next slice.
void merge(float* merged, const float* partial, int32_t dim) {
  const float top = merged[0] > partial[0] ? merged[0] : partial[0];
  const Lanes a = exp2(splat(merged[0] - top)), b = exp2(splat(partial[0] - top));
  merged[0] = top;
  store(merged + 1, fma(a, load(merged + 1, 1), mul(b, load(partial + 1, 1))), 1);
  for (int64_t d = kPartialHeader; d < partial_floats(dim); d += 16) {
    store(merged + d, fma(a, load(merged + d), mul(b, load(partial + d))));
  }
}

struct TileShape {
  const StepRow* row;  // the tile's first
  int32_t group, queries, dim;
  // Keys of slice s that query q sees; zero or less if it ends before.
  int32_t keys(int32_t query, int32_t s) const {
    return row[query / group].position + 1 - s * kAttentionSlice;
  }
};

// The pages of slice s of a unit's tile, as far as its last row sees them.
void find_slice(const Attention& op, const AttentionPlan& plan, const AttentionUnit& unit,
                int32_t s, SlicePages& to) {
  const AttentionTile& tile = plan.tiles[unit.tile];
  const int32_t keys = op.step[tile.row + tile.rows - 1].position + 1 - s * kAttentionSlice;
  find_pages(op, op.step[tile.row].blocks, tile.kv_head, s, keys, to);
}

// `after`: the unit that this thread is likely to do next, or null.
void run_unit(const Attention& op, const AttentionPlan& plan, const AttentionUnit& unit,
              const AttentionUnit* after, const AttentionMemory& m) {
  const AttentionTile& tile = plan.tiles[unit.tile];
  const KvLayout& l = op.kv.layout;
  const int32_t group = op.heads / l.kv_heads, dim = l.head_dim;
  const TileShape shape{op.step + tile.row, group, tile.rows * group, dim};
  const int64_t size = partial_floats(dim);
  const auto page_bytes = int64_t{2} * dim * l.block_tokens * 2;
  load_queries(op, tile, m.q);
  SlicePages pages, next;
  find_slice(op, plan, unit, unit.first, pages);
  for (int32_t s = unit.first; s < unit.last; ++s) {
    if (s > unit.first) pages = next;
    next.count = 0;
    if (s + 1 < unit.last) {
      find_slice(op, plan, unit, s + 1, next);
    } else if (after) {
      find_slice(op, plan, *after, after->first, next);
    }
    for (int32_t q0 = 0; q0 < shape.queries; q0 += kPassQueries) {
      int32_t q = q0, end = q0 + kPassQueries < shape.queries ? q0 + kPassQueries : shape.queries;
      while (q < end && shape.keys(q, s) <= 0) ++q;
      if (q == end) continue;
      int32_t keys[kPassQueries];
      for (int32_t i = q; i < end; ++i) {
        const int32_t n = shape.keys(i, s);
        keys[i - q] = n < kAttentionSlice ? n : kAttentionSlice;
      }
      // The first slice of a whole tile starts its merge.
      const bool whole = tile.partial < 0;
      float* to = whole ? (s == 0 ? m.merged + q * size : m.partial)
                        : plan.partials + tile.partial + (int64_t{s} * shape.queries + q) * size;
      attend_slice(pages, q0 == 0 ? Ahead(next, page_bytes) : Ahead(), dim, l.block_tokens, end - q,
                   keys, m.q + q * padded_dim(dim), m.scores, to);
      if (whole && s > 0) {
        for (int32_t i = q; i < end; ++i) merge(m.merged + i * size, to + (i - q) * size, dim);
      }
    }
  }
}

// Partials of a tile whose slices were shared out, in the order of the slices.
void merge_tile(const Attention& op, const AttentionPlan& plan, const AttentionTile& tile,
                float* merged) {
  const int32_t group = op.heads / op.kv.layout.kv_heads, dim = op.kv.layout.head_dim;
  const int32_t queries = tile.rows * group;
  const int64_t size = partial_floats(dim);
  const float* partials = plan.partials + tile.partial;
  for (int32_t q = 0; q < queries; ++q, merged += size) {
    const int32_t slices = op.step[tile.row + q / group].position / kAttentionSlice + 1;
    __builtin_memcpy(merged, partials + q * size, static_cast<size_t>(size) * sizeof(float));
    for (int64_t s = 1; s < slices; ++s) merge(merged, partials + (s * queries + q) * size, dim);
  }
}

void quantize_row(const float* x, int64_t width, QuantBlock* to) {
  for (int64_t i = 0; i < width; i += 32)
    quantize_block(load(x + i), load(x + i + 16), to + i / 32);
}

void finish_tile(const Attention& op, const AttentionPlan& plan, const AttentionTile& tile,
                 const AttentionMemory& m) {
  const int32_t group = op.heads / op.kv.layout.kv_heads, dim = op.kv.layout.head_dim;
  const int64_t width = int64_t{op.heads} * dim, share = int64_t{group} * dim;
  const float* merged = m.merged;
  for (int32_t r = tile.row; r < tile.row + tile.rows; ++r) {
    for (int32_t g = 0; g < group; ++g, merged += partial_floats(dim)) {
      const Lanes sum = splat(merged[1]);
      for (int32_t d = 0; d < dim; d += 16) {
        const Lanes y = div(load(merged + kPartialHeader + d), sum);
        store(m.out + int64_t{g} * dim + d, y, dim - d < 16 ? dim - d : 16);
      }
    }
    const int64_t at = r * width + tile.kv_head * share;
    const auto bytes = static_cast<size_t>(share) * sizeof(float);
    if (op.y.f32) __builtin_memcpy(op.y.f32 + at, m.out, bytes);
    if (plan.rows) {
      __builtin_memcpy(plan.rows + at, m.out, bytes);
    } else if (op.y.q) {
      quantize_row(m.out, share, op.y.q + at / 32);
    }
  }
}

void attention_body(const Attention& op, ThreadPool& pool, std::byte* scratch) {
  KERNELS_CHECK(op.kv.layout.type == KvType::kF16 && op.kv.layout.order == KvOrder::kLanes);
  if (op.rows == 0) return;
  const AttentionPlan plan = plan_attention(op, pool.threads(), scratch);
  auto units = [&op, &plan](int64_t begin, int64_t end, int thread) {
    const AttentionMemory m = attention_memory(op, plan, thread);
    for (int64_t u = begin; u < end; ++u) {
      const AttentionUnit& unit = plan.units[u];
      AttentionTile& tile = plan.tiles[unit.tile];
      run_unit(op, plan, unit, u + 1 < plan.unit_count ? &unit + 1 : nullptr, m);
      if (tile.partial >= 0) {
        if (__atomic_sub_fetch(&tile.left, 1, __ATOMIC_ACQ_REL) > 0) continue;
        merge_tile(op, plan, tile, m.merged);
      }
      finish_tile(op, plan, tile, m);
    }
  };
  parallel_for(pool, plan.unit_count, plan.grain, units);
  if (!plan.rows) return;
  auto rows = [&op, &plan](int64_t begin, int64_t end, int) {
    const int64_t width = int64_t{op.heads} * op.kv.layout.head_dim;
    for (int64_t r = begin; r < end; ++r) {
      quantize_row(plan.rows + r * width, width, op.y.q + r * (width / 32));
    }
  };
  parallel_for(pool, op.rows, 16, rows);
}

}  // namespace
}  // namespace headrace::kernels

#include "kernels/cpu/attention_plan.h"

#include <algorithm>

#include "kernels/cpu/bodies.h"

namespace headrace::kernels {
namespace {

// Below this many operations the caller does all alone: about two microseconds.
constexpr int64_t kAloneFlops = 100'000;
constexpr int64_t kUnitsPerThread = 8;

// Calls f(row, rows, slices) for the runs of at most kAttentionTileRows rows of one sequence.
template <class F>
void for_each_run(const Attention& op, F&& f) {
  for (int32_t r = 0; r < op.rows;) {
    int32_t n = 1;
    while (n < kAttentionTileRows && r + n < op.rows &&
           op.step[r + n].blocks == op.step[r].blocks) {
      ++n;
    }
    f(r, n, op.step[r + n - 1].position / kAttentionSlice + 1);
    r += n;
  }
}

// Units of a tile: more than one only if it is so large that threads would wait for it.
int32_t spans_of(int64_t work, int32_t slices, int64_t share) {
  const int64_t wanted = (work + share - 1) / share;
  return static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, slices));
}

struct Area {
  size_t bytes = 0;
  size_t take(size_t n) {  // returns the offset of n bytes, on a cache line of their own
    const size_t at = bytes;
    bytes += (n + 63) / 64 * 64;
    return at;
  }
};

}  // namespace

int64_t attention_thread_floats(const Attention& op) {
  const int32_t dim = op.kv.layout.head_dim, group = op.heads / op.kv.layout.kv_heads;
  const int64_t queries = int64_t{kAttentionTileRows} * group;
  return queries * (padded_dim(dim) + partial_floats(dim)) +
         kAttentionPass * (partial_floats(dim) + kScoreStride) +
         (int64_t{group} * dim + 31) / 16 * 16;
}

AttentionMemory attention_memory(const Attention& op, const AttentionPlan& plan, int thread) {
  const int32_t dim = op.kv.layout.head_dim, group = op.heads / op.kv.layout.kv_heads;
  const int64_t queries = int64_t{kAttentionTileRows} * group;
  AttentionMemory m;
  m.q = plan.threads + thread * plan.thread_floats;
  m.merged = m.q + queries * padded_dim(dim);
  m.partial = m.merged + queries * partial_floats(dim);
  m.scores = m.partial + kAttentionPass * partial_floats(dim);
  m.out = m.scores + kAttentionPass * kScoreStride;
  return m;
}

AttentionPlan plan_attention(const Attention& op, int threads, std::byte* scratch) {
  const KvLayout& l = op.kv.layout;
  const int32_t group = op.heads / l.kv_heads;
  int64_t tiles = 0, units = 0, partials = 0, work = 0, keys = 0;
  for_each_run(op, [&](int32_t row, int32_t rows, int32_t slices) {
    tiles += l.kv_heads;
    work += int64_t{rows} * slices * l.kv_heads;
    keys += int64_t{rows} * (op.step[row].position + 1);
  });
  const int64_t flops = keys * op.heads * l.head_dim * 4;
  const bool alone = threads == 1 || flops < kAloneFlops;
  const int64_t share = alone ? work + 1 : std::max<int64_t>(1, work / (kUnitsPerThread * threads));
  const auto partial_of = [&](int32_t rows, int32_t slices) {
    return int64_t{rows} * slices * group * partial_floats(l.head_dim);
  };
  for_each_run(op, [&](int32_t, int32_t rows, int32_t slices) {
    const int32_t spans = spans_of(int64_t{rows} * slices, slices, share);
    units += int64_t{spans} * l.kv_heads;
    if (spans > 1) partials += partial_of(rows, slices) * l.kv_heads;
  });

  AttentionPlan plan;
  plan.unit_count = units;
  plan.grain = alone ? std::max<int64_t>(1, units) : 1;
  plan.thread_floats = attention_thread_floats(op);
  const bool straddles = op.y.q && group * l.head_dim % 32 != 0;
  Area area;
  const size_t at_tiles = area.take(static_cast<size_t>(tiles) * sizeof(AttentionTile));
  const size_t at_units = area.take(static_cast<size_t>(units) * sizeof(AttentionUnit));
  const size_t at_partials = area.take(static_cast<size_t>(partials) * sizeof(float));
  const size_t at_threads =
      area.take(static_cast<size_t>(plan.thread_floats * threads) * sizeof(float));
  const size_t at_rows = area.take(
      straddles ? static_cast<size_t>(int64_t{op.rows} * op.heads * l.head_dim) * sizeof(float)
                : 0);
  plan.bytes = area.bytes;
  if (!scratch) return plan;

  plan.tiles = reinterpret_cast<AttentionTile*>(scratch + at_tiles);
  plan.units = reinterpret_cast<AttentionUnit*>(scratch + at_units);
  plan.partials = reinterpret_cast<float*>(scratch + at_partials);
  plan.threads = reinterpret_cast<float*>(scratch + at_threads);
  plan.rows = straddles ? reinterpret_cast<float*>(scratch + at_rows) : nullptr;
  int32_t tile = 0;
  int64_t unit = 0, partial = 0;
  for_each_run(op, [&](int32_t row, int32_t rows, int32_t slices) {
    const int32_t spans = spans_of(int64_t{rows} * slices, slices, share);
    for (int32_t h = 0; h < l.kv_heads; ++h, ++tile) {
      plan.tiles[tile] = {row, rows, h, slices, spans, spans > 1 ? partial : -1};
      if (spans > 1) partial += partial_of(rows, slices);
      for (int64_t s = 0; s < spans; ++s) {
        plan.units[unit++] = {tile, static_cast<int32_t>(slices * s / spans),
                              static_cast<int32_t>(slices * (s + 1) / spans)};
      }
    }
  });
  return plan;
}

size_t attention_scratch_bytes(const Attention& op, int threads) {
  return plan_attention(op, threads, nullptr).bytes;
}

}  // namespace headrace::kernels

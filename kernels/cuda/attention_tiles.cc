#include "kernels/cuda/attention_tiles.h"

#include <algorithm>
#include <tuple>

#include "kernels/check.h"

namespace headrace::cuda {
namespace {

// Rows of one sequence, or rows of no token.
struct Run {
  int32_t row, rows;
};

std::vector<Run> runs_of(const kernels::StepRow* rows, int32_t count) {
  std::vector<Run> runs;
  for (int32_t r = 0; r < count; ++r) {
    const bool token = rows[r].position >= 0;
    if (r > 0 && token == (rows[r - 1].position >= 0) &&
        (!token || rows[r].blocks == rows[r - 1].blocks)) {
      ++runs.back().rows;
    } else {
      runs.push_back({r, 1});
    }
  }
  return runs;
}

void cut(const kernels::StepRow* rows, Run run, int32_t group, int32_t size,
         std::vector<AttentionTile>& into) {
  const int32_t queries = run.rows * group;
  for (int32_t first = 0; first < queries; first += size) {
    AttentionTile tile;
    tile.row = run.row + first / group;
    tile.head = first % group;
    tile.queries = std::min(size, queries - first);
    const int32_t last = rows[run.row + (first + tile.queries - 1) / group].position;
    tile.slices = last < 0 ? 0 : last / kCudaSlice + 1;
    into.push_back(tile);
  }
}

// Gives partial results and counters to tiles, while there are some left.
void split(AttentionPlan& plan, const kernels::KvLayout& kv, int processors,
           size_t workspace_bytes) {
  const size_t row_bytes =
      sizeof(float) * static_cast<size_t>(attention_partial_floats(kv.head_dim));
  int64_t left = static_cast<int64_t>(workspace_bytes / row_bytes);
  int64_t partials = 0;
  int32_t counter = 0;
  for (AttentionTile& tile : plan.tiles) {
    const int64_t rows = int64_t{tile.slices} * tile.queries * kv.kv_heads;
    if (tile.slices < 2 || rows > left || counter + kv.kv_heads > attention_counters(processors))
      continue;
    tile.partials = static_cast<int32_t>(partials);
    tile.counter = counter;
    partials += rows;
    left -= rows;
    counter += kv.kv_heads;
    plan.spread = std::max(plan.spread, tile.slices);
  }
}

}  // namespace

AttentionPlan plan_attention(const kernels::StepRow* rows, int32_t count, int32_t heads,
                             const kernels::KvLayout& kv, int processors, size_t workspace_bytes,
                             AttentionSchedule schedule) {
  KERNELS_CHECK(kv.kv_heads > 0 && heads % kv.kv_heads == 0);
  const int32_t group = heads / kv.kv_heads;
  AttentionPlan plan;
  for (const Run& run : runs_of(rows, count)) {
    const bool few = schedule == AttentionSchedule::kAuto
                         ? int64_t{run.rows} * group <= kAttentionFewQueries
                         : schedule != AttentionSchedule::kChunks;
    cut(rows, run, group, few ? kAttentionTileQueries : kAttentionChunkQueries,
        few ? plan.tiles : plan.chunks);
  }
  // Long ones first: what is left for the end is short.
  std::sort(plan.chunks.begin(), plan.chunks.end(),
            [](const AttentionTile& a, const AttentionTile& b) {
              return std::tie(b.slices, a.row, a.head) < std::tie(a.slices, b.row, b.head);
            });
  // Two blocks a processor keep it busy without splitting.
  const bool idle = static_cast<int64_t>(plan.tiles.size()) * kv.kv_heads < 2 * int64_t{processors};
  if (schedule == AttentionSchedule::kSplit || (schedule == AttentionSchedule::kAuto && idle))
    split(plan, kv, processors, std::min(workspace_bytes, kAttentionWorkspaceMax));
  return plan;
}

size_t attention_workspace(const kernels::KvLayout& kv, int32_t context, int processors) {
  const auto slices = static_cast<size_t>((int64_t{context} + kCudaSlice - 1) / kCudaSlice);
  const auto row = sizeof(float) * static_cast<size_t>(attention_partial_floats(kv.head_dim));
  const auto tiles = static_cast<size_t>(attention_counters(processors));
  return std::min(kAttentionWorkspaceMax, tiles * kAttentionTileQueries * slices * row);
}

}  // namespace headrace::cuda

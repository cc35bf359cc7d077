#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kv.h"

// How a step's attention is shared out on a GPU. A query is one row of the step with one head of a
// KV group; those of a sequence are numbered row by row, each row's heads in turn, and cut into
// tiles. Nothing here changes a bit of a result: keys lie in slices at absolute places, and slices
// are merged in order, whoever computes them.

namespace headrace::cuda {

constexpr int32_t kCudaSlice = 128;             // keys
constexpr int32_t kAttentionTileQueries = 16;   // of a tile of few queries: one block
constexpr int32_t kAttentionChunkQueries = 64;  // of a chunk tile: a block whose warps share keys
// Sequences with up to so many queries a KV head go by tiles, larger ones by chunk tiles.
constexpr int32_t kAttentionFewQueries = 32;
// Most scratch memory that a plan asks for; sequences that find none left are not split.
constexpr size_t kAttentionWorkspaceMax = size_t{64} << 20;

// 32 bytes at once: a sector of memory.
struct alignas(32) AttentionTile {
  int32_t row = 0;        // of its first query
  int32_t head = 0;       // of its first query, in the KV group
  int32_t queries = 0;    // 0: a spare tile; nothing is done for it
  int32_t slices = 0;     // up to its last position; 0: rows of no token, which get zeros
  int32_t partials = -1;  // its first row of partial results; negative: one block does all slices
  int32_t counter = 0;    // its first counter, one a KV head, if it is split
};

enum class AttentionSchedule : uint8_t { kAuto, kChunks, kTiles, kSplit };

struct AttentionPlan {
  std::vector<AttentionTile> chunks;  // up to kAttentionChunkQueries each, the longest first
  std::vector<AttentionTile> tiles;   // up to kAttentionTileQueries each
  int32_t spread = 1;                 // most slices of a split tile
};

// Floats of one partial row: head_dim values, largest score, sum, and what keeps sectors whole.
constexpr int32_t kAttentionPartialExtra = 8;
constexpr int32_t attention_partial_floats(int32_t head_dim) {
  return head_dim + kAttentionPartialExtra;
}

// Of `count` rows of a step; only whether `blocks` are equal is looked at. `workspace_bytes` is
// what partial results may take. Other schedules than kAuto are for tests and measurements.
AttentionPlan plan_attention(const kernels::StepRow* rows, int32_t count, int32_t heads,
                             const kernels::KvLayout& kv, int processors, size_t workspace_bytes,
                             AttentionSchedule schedule = AttentionSchedule::kAuto);

// Bytes with which every plan splits as it likes, up to kAttentionWorkspaceMax, for sequences of
// up to `context` tokens.
size_t attention_workspace(const kernels::KvLayout& kv, int32_t context, int processors);
// Counters that plans use at most.
constexpr int32_t attention_counters(int processors) { return 2 * processors; }

}  // namespace headrace::cuda

#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace headrace::kernels {

// How one attention operation is shared out. It moves work between threads and never changes what
// is added to what: a slice's partial result and the order in which slices are merged are fixed by
// the key positions alone (determinism rule b).

// Rows of one sequence that read a slice together, for one KV head.
constexpr int32_t kAttentionTileRows = 8;

struct AttentionTile {
  int32_t row, rows;  // rows [row, row + rows)
  int32_t kv_head;
  int32_t slices;   // of its last row
  int32_t left;     // units still to do; the thread that ends the last one merges
  int64_t partial;  // where its partials begin, in floats; -1 if one unit does the whole tile
};

struct AttentionUnit {
  int32_t tile;
  int32_t first, last;  // slices [first, last)
};

// Partial result of one (query, slice), and the running merge of them: [0] largest score, [1] sum,
// from [16] on the weighted values, each padded to a cache line.
constexpr int64_t kPartialHeader = 16;
constexpr int64_t padded_dim(int32_t head_dim) { return (int64_t{head_dim} + 15) / 16 * 16; }
constexpr int64_t partial_floats(int32_t head_dim) { return kPartialHeader + padded_dim(head_dim); }

struct AttentionPlan {
  AttentionTile* tiles = nullptr;
  AttentionUnit* units = nullptr;
  int64_t unit_count = 0;
  int64_t grain = 1;          // units a chunk; all of them when threads would not pay
  float* partials = nullptr;  // [tile][slice][query][partial_floats]
  float* threads = nullptr;   // [thread][thread_floats]: a thread's own memory
  int64_t thread_floats = 0;
  float* rows = nullptr;  // [rows, heads * head_dim], only if blocks of 32 straddle KV heads
  size_t bytes = 0;       // of scratch in all
};

// Lays the plan out in `scratch`; null only counts its bytes.
AttentionPlan plan_attention(const Attention& op, int threads, std::byte* scratch);

// Bits of a thread's own memory: queries of a tile, then the running merge of each, the partials of
// one pass, scores of one pass, one row of output.
struct AttentionMemory {
  float *q, *merged, *partial, *scores, *out;
};
constexpr int32_t kAttentionPass = 8;  // queries that one pass over a slice serves, at most
constexpr int64_t kScoreStride = kAttentionSlice + 64;
int64_t attention_thread_floats(const Attention& op);
AttentionMemory attention_memory(const Attention& op, const AttentionPlan& plan, int thread);

}  // namespace headrace::kernels

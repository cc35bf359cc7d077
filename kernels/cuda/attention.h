#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/context.h"
#include "kernels/ops.h"

namespace headrace::cuda {

constexpr int32_t kAttentionHeadDimMax = 128;

// An AttentionPlan as a launch is told of it: tiles in device memory, uploaded by the caller before
// the step's first kernel. Counts may be those of a larger step (a graph's): spare tiles have
// `queries` 0. `spread` may be any number: that many blocks share a split tile's slices.
struct AttentionWork {
  const AttentionTile* chunks = nullptr;
  int32_t chunk_count = 0;
  const AttentionTile* tiles = nullptr;
  int32_t tile_count = 0;
  int32_t spread = 1;            // <= kAttentionSpreadMax
  uint32_t* counters = nullptr;  // attention_counters(processors), zero before and after
};
constexpr int32_t kAttentionSpreadMax = 65535;  // blocks of a grid along z

// kernels::Attention over pages of KvOrder::kRows, types f16, bf16, fp8, int8; block_tokens 16, 32
// or 64; head_dim a multiple of 8 (of 16 for fp8 and int8) up to kAttentionHeadDimMax; y as f32, as
// bf16 with sums, or both; qkv, the pool and y 16-byte aligned. Partial results of split tiles lie
// in the context's workspace, which must be as large as the plan was told.
//
// Queries are rounded to f16 (bf16 for bf16 KV) after they are multiplied by log2(e) /
// sqrt(head_dim), weights to f16 (bf16 for all but f16 KV); sums are f32. Tokens behind a tile's
// last position and blocks that are in no table are never read. Within a sequence, a V that is not
// finite may also reach rows of the same step in front of it; it never reaches other sequences.
cudaError_t enqueue(const kernels::Attention& op, const AttentionWork& work,
                    const Context& context);

// kernels::RopeAppendKv into pages of KvOrder::kRows of any type; head_dim even, up to
// kAppendHeadDimMax. Rotates in f32. k and v of `qkv` stay as they are.
constexpr int32_t kAppendHeadDimMax = 256;
cudaError_t enqueue(const kernels::RopeAppendKv& op, const Context& context);

}  // namespace headrace::cuda

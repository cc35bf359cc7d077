#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cost.h"
#include "kernels/cuda/context.h"

// What a GPU can do at most, as kernels that do nothing else. For measuring (limits.h); none is
// part of a model.

namespace headrace::cuda {

// Reads `bytes` `times` times over, past the L1 as the kernels read weights, and adds what it read,
// as 32-bit words, to *sum. 16-byte aligned; bytes a multiple of 16; at most 2^31 pieces of
// kRoofPieceBytes, times over.
struct ReadRoof {
  const void* from = nullptr;
  size_t bytes = 0;
  uint32_t times = 1;
  uint32_t* sum = nullptr;
};
constexpr size_t kRoofPieceBytes = 32 * 1024;

cudaError_t enqueue(const ReadRoof& op, const Context& context);

inline kernels::Cost cost(const ReadRoof& op) {
  return {.weight_bytes = static_cast<uint64_t>(op.bytes) * op.times,
          .activation_bytes = sizeof(uint32_t)};
}

// Products of one bf16 fragment pair with sums in f32, all operands in registers: `rounds` times
// kRoofChains products a warp, each 2 x 16 x 8 x 16 operations. `fragments`: for each lane the four
// words of a and the two of b (dev.h, mma_bf16_16816), word by word: six times 32. sums[thread] =
// what a thread holds in the end, added up.
struct MmaRoof {
  const uint32_t* fragments = nullptr;
  uint32_t rounds = 0;
  float* sums = nullptr;
};
constexpr unsigned kRoofChains = 8;
constexpr size_t kRoofFragmentWords = 6 * 32;
size_t roof_threads(const MmaRoof& op, int processors);

cudaError_t enqueue(const MmaRoof& op, const Context& context);

inline kernels::Cost cost(const MmaRoof& op, int processors) {
  const uint64_t warps = roof_threads(op, processors) / 32;
  return {.flops = warps * op.rounds * kRoofChains * 2 * 16 * 8 * 16};
}

// Nothing, started as the operations of a step are: what a launch costs.
struct LaunchRoof {};

cudaError_t enqueue(const LaunchRoof& op, const Context& context);

}  // namespace headrace::cuda

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Kernels that do each wrapper of the facade (kernels/cuda/dev.h) on given words, compiled once
// with each of its two bodies: what they leave must be the same on a GPU and on the emulator.

namespace headrace::gpu {

// One wrapper, or a few that have no result without one another.
enum class Wrapper : int {
  kLd16,
  kLd8,
  kLdStream16,
  kCpAsync16,
  kLdmatrixX4,
  kLdmatrixX4Trans,
  kLdmatrixX2,
  kMmaF16,
  kMmaBf16,
  kLop3,
  kPrmt,
  kFastExp2,
  kFastRsqrt,
  kFmaF16x2,
  kFmaBf16x2,
  kBulk,  // mbarriers and the bulk copy; sm_90
  kShuffles,
  kVotes,
  kSyncwarp,
  kAtomicAdd,
  kAtomicMax,
  kAtomicCas,
  kFence,
  kDependency,  // two launches
  kHalfToFloat,
  kFloatToHalf,
  kBf16ToFloat,
  kFloatToBf16,
  kHalvesToFloats,
  kFloatsToHalves,
  kBf16sToFloats,
  kFloatsToBf16s,
  kE4m3sToFloats,
  kFloatsToE4m3s,
  kFloatBits,
};

// How many threads a run of it has, in blocks of kWrapperThreads; each reads and writes four words
// of its own at `in` and `out`, both 16-byte aligned; those of a wrapper that exchanges read their
// block's. `out` is zero beforehand.
constexpr unsigned kWrapperThreads = 32;

cudaError_t enqueue(Wrapper wrapper, unsigned threads, const uint32_t* in, uint32_t* out,
                    cudaStream_t stream);

}  // namespace headrace::gpu

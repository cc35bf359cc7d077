#include "kernels/cuda/roofs.h"

#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

// Reading: pieces of 32 KB, a block at a time, eight 16-byte vectors a thread in flight; with four
// blocks a processor that is 128 KB, several times what latency asks for. Blocks go on with the
// next sweep while others end the last, so that a working set of a few pieces keeps all of them
// busy. Products: sixteen warps a processor, eight chains each, more than a tensor core's latency.

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarpLanes = 32;
constexpr unsigned kVectors = 8;
constexpr size_t kVectorBytes = 16;
constexpr size_t kPieceVectors = size_t{kThreads} * kVectors;
static_assert(kPieceVectors * kVectorBytes == kRoofPieceBytes);
constexpr unsigned kReadBlocks = 4;  // a processor
constexpr unsigned kMmaBlocks = 2;
constexpr size_t kWorksMax = 0x7fffffff;

__global__ void __launch_bounds__(kThreads)
    read_roof_kernel(const unsigned char* from, size_t vectors, unsigned pieces, unsigned works,
                     uint32_t* sum) {
  uint32_t total = 0;
  unsigned piece = blockIdx.x % pieces;
  const unsigned step = gridDim.x % pieces;
  for (unsigned work = blockIdx.x; work < works; work += gridDim.x) {
    const size_t first = piece * kPieceVectors + threadIdx.x;
    uint4 held[kVectors];
    const unsigned char* const start = from + first * kVectorBytes;
    // Loads that nothing guards are all under way before the first is needed.
    if (first + (kVectors - 1) * kThreads < vectors) {
#pragma unroll
      for (unsigned i = 0; i < kVectors; i++) {
        held[i] = ld_stream16(start + i * kThreads * kVectorBytes);
      }
    } else {
#pragma unroll
      for (unsigned i = 0; i < kVectors; i++) {
        held[i] = make_uint4(0, 0, 0, 0);
        if (first + i * kThreads < vectors) {
          held[i] = ld_stream16(start + i * kThreads * kVectorBytes);
        }
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kVectors; i++) {
      total += held[i].x + held[i].y + held[i].z + held[i].w;
    }
    piece += step;
    if (piece >= pieces) piece -= pieces;
  }
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) {
    total += shfl_xor(kFullMask, total, lanes);
  }
  if (threadIdx.x % kWarpLanes == 0) atomic_add(sum, total);
}

__global__ void __launch_bounds__(kThreads)
    mma_roof_kernel(const uint32_t* fragments, unsigned rounds, float* sums) {
  const unsigned lane = threadIdx.x % kWarpLanes;
  uint32_t a[4];
  uint32_t b[2];
#pragma unroll
  for (unsigned i = 0; i < 4; i++) a[i] = fragments[i * kWarpLanes + lane];
#pragma unroll
  for (unsigned i = 0; i < 2; i++) b[i] = fragments[(4 + i) * kWarpLanes + lane];
  float d[kRoofChains][4] = {};
  for (unsigned round = 0; round < rounds; round++) {
#pragma unroll
    for (unsigned chain = 0; chain < kRoofChains; chain++) mma_bf16_16816(d[chain], a, b);
  }
  float total = 0;
#pragma unroll
  for (unsigned chain = 0; chain < kRoofChains; chain++) {
    total += (d[chain][0] + d[chain][1]) + (d[chain][2] + d[chain][3]);
  }
  sums[size_t{blockIdx.x} * kThreads + threadIdx.x] = total;
}

__global__ void __launch_bounds__(kWarpLanes) launch_roof_kernel() {
  grid_dependency_wait();
  grid_dependency_trigger();
}

}  // namespace

cudaError_t enqueue(const ReadRoof& op, const Context& context) {
  const size_t pieces = (op.bytes + kRoofPieceBytes - 1) / kRoofPieceBytes;
  if (!vector_aligned(op.from) || op.bytes % kVectorBytes != 0 || context.processors < 1 ||
      pieces > kWorksMax || pieces * op.times > kWorksMax) {
    return cudaErrorInvalidValue;
  }
  if (op.bytes == 0 || op.times == 0) return cudaSuccess;
  const auto works = static_cast<unsigned>(pieces * op.times);
  const unsigned most = static_cast<unsigned>(context.processors) * kReadBlocks;
  return launch("read_roof", context.stream, dim3(works < most ? works : most), dim3(kThreads), 0,
                read_roof_kernel, static_cast<const unsigned char*>(op.from),
                op.bytes / kVectorBytes, static_cast<unsigned>(pieces), works, op.sum);
}

size_t roof_threads(const MmaRoof&, int processors) {
  return static_cast<size_t>(processors) * kMmaBlocks * kThreads;
}

cudaError_t enqueue(const MmaRoof& op, const Context& context) {
  if (context.processors < 1) return cudaErrorInvalidValue;
  const unsigned blocks = static_cast<unsigned>(context.processors) * kMmaBlocks;
  return launch("mma_roof", context.stream, dim3(blocks), dim3(kThreads), 0, mma_roof_kernel,
                op.fragments, op.rounds, op.sums);
}

cudaError_t enqueue(const LaunchRoof&, const Context& context) {
  return launch_dependent("launch_roof", context.stream, dim3(1), dim3(kWarpLanes), 0,
                          launch_roof_kernel);
}

}  // namespace headrace::cuda

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kVectors = 4;  // of a thread
constexpr size_t kVectorBytes = 16;
constexpr size_t kPartBytes = kThreads * kVectors * kVectorBytes;

struct Ids {
  uint32_t of[kZeroBlocksAtOnce];
};

__global__ void __launch_bounds__(kThreads)
    zero_blocks_kernel(unsigned char* pool, size_t block_bytes, Ids ids, unsigned parts) {
  grid_dependency_wait();
  grid_dependency_trigger();
  unsigned char* block = pool + ids.of[blockIdx.x / parts] * block_bytes;
  const size_t first = blockIdx.x % parts * kPartBytes + threadIdx.x * kVectorBytes;
#pragma unroll
  for (unsigned i = 0; i < kVectors; i++) {
    const size_t at = first + i * kThreads * kVectorBytes;
    if (at < block_bytes) st16(block + at, make_uint4(0, 0, 0, 0));
  }
}

}  // namespace

cudaError_t enqueue(const ZeroBlocks& op, const Context& context) {
  const size_t parts = (op.block_bytes + kPartBytes - 1) / kPartBytes;
  if (!vector_aligned(op.pool) || op.block_bytes % kVectorBytes != 0 ||
      parts > kGridMax / kZeroBlocksAtOnce) {
    return cudaErrorInvalidValue;
  }
  cudaError_t error = cudaSuccess;
  for (uint32_t first = 0; first < op.count && parts != 0 && error == cudaSuccess;
       first += kZeroBlocksAtOnce) {
    const uint32_t left = op.count - first;
    const uint32_t count = left < kZeroBlocksAtOnce ? left : kZeroBlocksAtOnce;
    Ids ids{};
    for (uint32_t i = 0; i < count; i++) ids.of[i] = op.ids[first + i];
    error = launch_dependent("zero_blocks", context.stream,
                             dim3(static_cast<unsigned>(count * parts)), dim3(kThreads), 0,
                             zero_blocks_kernel, reinterpret_cast<unsigned char*>(op.pool),
                             op.block_bytes, ids, static_cast<unsigned>(parts));
  }
  return error;
}

}  // namespace headrace::cuda

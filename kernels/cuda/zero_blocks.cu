#include "kernels/cuda/blocks.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kVectors = 4;  // of a thread
constexpr size_t kVectorBytes = 16;
constexpr size_t kPartBytes = kThreads * kVectors * kVectorBytes;

__global__ void __launch_bounds__(kThreads)
    zero_blocks_kernel(unsigned char* pool, size_t block_bytes, const uint32_t* ids,
                       unsigned parts) {
  grid_dependency_wait();
  grid_dependency_trigger();
  unsigned char* block = pool + ids[blockIdx.x / parts] * block_bytes;
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
      (parts != 0 && op.count > kGridMax / parts)) {
    return cudaErrorInvalidValue;
  }
  if (op.count == 0 || op.block_bytes == 0) return cudaSuccess;
  return launch_dependent("zero_blocks", context.stream,
                          dim3(static_cast<unsigned>(op.count * parts)), dim3(kThreads), 0,
                          zero_blocks_kernel, reinterpret_cast<unsigned char*>(op.pool),
                          op.block_bytes, op.ids, static_cast<unsigned>(parts));
}

}  // namespace headrace::cuda

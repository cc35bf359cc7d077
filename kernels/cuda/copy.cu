#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/ops.h"

// A copy at the speed of memory: the smallest kernel there is. Tests of graphs, of gates and of
// what counts bytes run it, and it shows what a source of this folder looks like. A thread has four
// 16-byte vectors in flight, a block's width apart, so that each access of a warp is 512 bytes in a
// row.

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kVectors = 4;
constexpr size_t kBlockVectors = kThreads * kVectors;
constexpr size_t kVectorBytes = 16;

__global__ void __launch_bounds__(kThreads)
    copy_kernel(unsigned char* __restrict__ to, const unsigned char* __restrict__ from,
                size_t bytes) {
  const size_t vectors = bytes / kVectorBytes;
  const size_t first = blockIdx.x * kBlockVectors + threadIdx.x;
  uint4 held[kVectors];
#pragma unroll
  for (unsigned i = 0; i < kVectors; i++) {
    const size_t at = first + i * kThreads;
    if (at < vectors) held[i] = ld_stream16(from + at * kVectorBytes);
  }
#pragma unroll
  for (unsigned i = 0; i < kVectors; i++) {
    const size_t at = first + i * kThreads;
    if (at < vectors) st16(to + at * kVectorBytes, held[i]);
  }
  // The last bytes, fewer than a vector.
  const size_t tail = vectors * kVectorBytes + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && tail < bytes) to[tail] = from[tail];
}

}  // namespace

cudaError_t enqueue(const CopyBytes& op, cudaStream_t stream) {
  if (!vector_aligned(op.to) || !vector_aligned(op.from)) return cudaErrorInvalidValue;
  if (op.bytes == 0) return cudaSuccess;
  const size_t block_bytes = kBlockVectors * kVectorBytes;
  const size_t blocks = (op.bytes + block_bytes - 1) / block_bytes;
  if (blocks > kGridMax) return cudaErrorInvalidValue;
  return launch("copy", stream, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, copy_kernel,
                static_cast<unsigned char*>(op.to), static_cast<const unsigned char*>(op.from),
                op.bytes);
}

}  // namespace headrace::cuda

#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/ops.h"

// One block a row. The row is read once and stays in registers, eight values a vector, while its
// squares are summed: within the thread, across the warp by shuffles, across warps through shared
// memory.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreadsMax = 512;
constexpr unsigned kVectors = 4;         // of a thread, at most
constexpr unsigned kVectorElements = 8;  // bf16 in 16 bytes
static_assert(kThreadsMax * kVectors * kVectorElements == kRowNormColumnsMax);

struct Shared {
  float sums[kThreadsMax / kWarp];  // of each warp
};

__device__ __forceinline__ float sum_of_squares(uint32_t pair) {
  const float2 v = bf16s_to_floats(pair);
  return v.x * v.x + v.y * v.y;
}

__device__ __forceinline__ uint32_t scaled(uint32_t pair, uint32_t gains, float factor) {
  const float2 v = bf16s_to_floats(pair);
  const float2 g = bf16s_to_floats(gains);
  return floats_to_bf16s(v.x * factor * g.x, v.y * factor * g.y);
}

__global__ void __launch_bounds__(kThreadsMax)
    row_norm_kernel(uint16_t* out, const uint16_t* in, const uint16_t* __restrict__ gain,
                    unsigned columns, float epsilon) {
  HEADRACE_SHARED(Shared, shared);
  const unsigned vectors = columns / kVectorElements;
  const size_t row = static_cast<size_t>(blockIdx.x) * columns;
  uint4 held[kVectors];
  float sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kVectors; i++) {
    const unsigned at = threadIdx.x + i * blockDim.x;
    if (at >= vectors) continue;
    held[i] = ld16(in + row + at * kVectorElements);
    sum += sum_of_squares(held[i].x) + sum_of_squares(held[i].y) + sum_of_squares(held[i].z) +
           sum_of_squares(held[i].w);
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += shfl_xor(kFullMask, sum, lanes);
  if (threadIdx.x % kWarp == 0) shared->sums[threadIdx.x / kWarp] = sum;
  syncthreads();
  float total = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; warp++) total += shared->sums[warp];
  const float factor = fast_rsqrt(total / static_cast<float>(columns) + epsilon);
#pragma unroll
  for (unsigned i = 0; i < kVectors; i++) {
    const unsigned at = threadIdx.x + i * blockDim.x;
    if (at >= vectors) continue;
    const uint4 g = ld16(gain + at * kVectorElements);
    st16(out + row + at * kVectorElements,
         make_uint4(scaled(held[i].x, g.x, factor), scaled(held[i].y, g.y, factor),
                    scaled(held[i].z, g.z, factor), scaled(held[i].w, g.w, factor)));
  }
}

}  // namespace

cudaError_t enqueue(const RowNorm& op, cudaStream_t stream) {
  if (!vector_aligned(op.out) || !vector_aligned(op.in) || !vector_aligned(op.gain) ||
      op.columns % kVectorElements != 0 || op.columns > kRowNormColumnsMax || op.rows > kGridMax) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.columns == 0) return cudaSuccess;
  // Whole warps, a vector a thread while that is enough.
  const unsigned vectors = op.columns / kVectorElements;
  const unsigned wanted = (vectors + kWarp - 1) / kWarp * kWarp;
  const unsigned threads = wanted < kThreadsMax ? wanted : kThreadsMax;
  return launch("row_norm", stream, dim3(op.rows), dim3(threads), sizeof(Shared), row_norm_kernel,
                op.out, op.in, op.gain, op.columns, op.epsilon);
}

}  // namespace headrace::cuda

#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/row_values.h"
#include "kernels/cuda/rows.h"

// One block a row. The row is read once and stays in registers, four values a vector, while its
// squares are summed: within the thread, across the warp by shuffles, across warps through shared
// memory. How many threads there are depends on the width alone, and so does the order of the sum.
// The gain is in registers before the launch in front has ended.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreadsMax = 512;
constexpr unsigned kVectors = 8;  // of a thread, at most
static_assert(kThreadsMax * kVectors * kLaneValues == kRmsNormDimMax);

struct Shared {
  float sums[kThreadsMax / kWarp];  // of each warp
};

// Of the whole row, the same in each thread.
__device__ __forceinline__ float row_sum(float sum, float* sums) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += shfl_xor(kFullMask, sum, lanes);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  syncthreads();
  float total = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; warp++) total += sums[warp];
  return total;
}

__device__ __forceinline__ float4 load(const float* from, unsigned vector, unsigned vectors) {
  if (vector >= vectors) return make_float4(0, 0, 0, 0);
  return floats(ld16(from + size_t{vector} * kLaneValues));
}

template <unsigned kHeld>
__global__ void __launch_bounds__(kThreadsMax)
    rms_norm_kernel(const float* x, const float* __restrict__ gain, unsigned dim, unsigned pitch,
                    float eps, kernels::RowsOut y) {
  HEADRACE_SHARED(Shared, shared);
  const unsigned vectors = dim / kLaneValues;
  float4 gains[kHeld];
#pragma unroll
  for (unsigned i = 0; i < kHeld; i++) {
    gains[i] = load(gain, threadIdx.x + i * blockDim.x, vectors);
  }
  grid_dependency_wait();
  grid_dependency_trigger();
  float4 held[kHeld];
  float sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kHeld; i++) {
    held[i] = load(x + size_t{blockIdx.x} * dim, threadIdx.x + i * blockDim.x, vectors);
    sum += (held[i].x * held[i].x + held[i].y * held[i].y) +
           (held[i].z * held[i].z + held[i].w * held[i].w);
  }
  const float total = row_sum(sum, shared->sums);
  const float factor = 1.0f / sqrtf(total / static_cast<float>(dim) + eps);
#pragma unroll
  for (unsigned i = 0; i < kHeld; i++) {
    const float4 v = held[i];
    const float4 g = gains[i];
    deliver(y, blockIdx.x, threadIdx.x + i * blockDim.x, dim, pitch,
            make_float4(v.x * factor * g.x, v.y * factor * g.y, v.z * factor * g.z,
                        v.w * factor * g.w));
  }
}

template <unsigned kHeld>
cudaError_t launch_held(const kernels::RmsNorm& op, unsigned threads, const Context& context) {
  return launch_dependent("rms_norm", context.stream, dim3(static_cast<unsigned>(op.rows)),
                          dim3(threads), sizeof(Shared), rms_norm_kernel<kHeld>, op.x, op.gain,
                          static_cast<unsigned>(op.dim),
                          static_cast<unsigned>(kernels::bf16_pitch(op.dim)), op.eps, op.y);
}

}  // namespace

cudaError_t enqueue(const kernels::RmsNorm& op, const Context& context) {
  if (!row_width(op.dim) || op.dim > kRmsNormDimMax || op.rows < 0 || !deliverable(op.y) ||
      !vector_aligned(op.x) || !vector_aligned(op.gain)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.dim == 0) return cudaSuccess;
  // Whole warps, one vector a thread while that is enough; padding too is written by someone.
  const unsigned vectors = static_cast<unsigned>(kernels::bf16_pitch(op.dim)) / kLaneValues;
  const unsigned wanted = (vectors + kWarp - 1) / kWarp * kWarp;
  const unsigned threads = wanted < kThreadsMax ? wanted : kThreadsMax;
  const unsigned held = (vectors + threads - 1) / threads;
  if (held <= 2) return launch_held<2>(op, threads, context);
  if (held <= 4) return launch_held<4>(op, threads, context);
  return launch_held<kVectors>(op, threads, context);
}

}  // namespace headrace::cuda

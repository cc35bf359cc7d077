#pragma once

#include "kernels/activation.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

// Rows of activations, four neighbouring values a lane: f32 move 16 bytes a lane, bf16 8, and each
// 32 columns that share a sum are eight neighbouring lanes.

namespace headrace::cuda {

constexpr unsigned kLaneValues = 4;
constexpr unsigned kLanesOfSum = 32 / kLaneValues;

// Whether rows of this width can be moved so, and delivered there.
inline bool row_width(int32_t width) {
  return width >= 0 && static_cast<unsigned>(width) % kLaneValues == 0;
}
inline bool deliverable(const kernels::RowsOut& y) {
  return y.q == nullptr && (y.f32 != nullptr || y.bf16 != nullptr) &&
         (y.bf16 == nullptr) == (y.sums == nullptr) && vector_aligned(y.f32) &&
         vector_aligned(y.bf16) && vector_aligned(y.sums);
}

__device__ __forceinline__ float4 floats(uint4 v) {
  return make_float4(bits_float(v.x), bits_float(v.y), bits_float(v.z), bits_float(v.w));
}
__device__ __forceinline__ uint4 bits(float4 v) {
  return make_uint4(float_bits(v.x), float_bits(v.y), float_bits(v.z), float_bits(v.w));
}

// Four values of a row, at 4 * `vector`; all lanes of the warp with vectors in a row. Those past
// the width are zero, those past the pitch go nowhere.
__device__ __forceinline__ void deliver(const kernels::RowsOut& y, size_t row, unsigned vector,
                                        unsigned width, unsigned pitch, float4 v) {
  const size_t at = size_t{vector} * kLaneValues;
  if (y.f32 != nullptr && at < width) st16(y.f32 + row * width + at, bits(v));
  if (y.bf16 == nullptr) return;
  const uint2 two = make_uint2(floats_to_bf16s(v.x, v.y), floats_to_bf16s(v.z, v.w));
  if (at < pitch) st8(y.bf16 + row * pitch + at, two);
  const float2 lower = bf16s_to_floats(two.x);
  const float2 upper = bf16s_to_floats(two.y);
  float sum = (lower.x + lower.y) + (upper.x + upper.y);
#pragma unroll
  for (unsigned lanes = 1; lanes < kLanesOfSum; lanes *= 2) {
    sum += shfl_xor(kFullMask, sum, static_cast<int>(lanes));
  }
  if (at < pitch && vector % kLanesOfSum == 0) {
    y.sums[(row * pitch + at) / 32] = sum;
  }
}

}  // namespace headrace::cuda

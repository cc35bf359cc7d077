#pragma once

#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

// What kernels over logits share. A row is cut into slices, a block each. A token's place in the
// order of falling logits is one number: the logit's bits, so turned that the larger is less, above
// the id. The least place is the most probable token.

namespace headrace::cuda {

using Place = unsigned long long;
constexpr Place kNoPlace = ~Place{0};  // behind all; no token has it

constexpr unsigned kSliceThreads = 256;
constexpr unsigned kSliceVectors = 4;  // of a thread, four logits each
constexpr unsigned kSliceLogits = kSliceThreads * kSliceVectors * 4;

inline unsigned slices_of(int32_t vocab) {
  return (static_cast<unsigned>(vocab) + kSliceLogits - 1) / kSliceLogits;
}
inline bool logits_fit(const float* logits, int32_t rows, int32_t vocab, int64_t stride,
                       int32_t vocab_max) {
  return rows >= 0 && vocab >= 0 && vocab <= vocab_max && stride >= vocab && stride % 4 == 0 &&
         vector_aligned(logits) && static_cast<size_t>(rows) * slices_of(vocab) <= kGridMax;
}

__device__ __forceinline__ bool is_nan(float x) { return x != x; }
template <class T>
__device__ __forceinline__ T lesser(T a, T b) {
  return b < a ? b : a;
}

// NaN counts as minus infinity, -0 as 0.
__device__ __forceinline__ Place place_of(float x, unsigned id) {
  const uint32_t b = float_bits(is_nan(x) ? -INFINITY : x + 0.0f);
  const uint32_t falling = b & 0x80000000u ? b : ~b & 0x7fffffffu;
  return Place{falling} << 32 | id;
}
__device__ __forceinline__ float logit_of(Place place) {
  const auto falling = static_cast<uint32_t>(place >> 32);
  return bits_float(falling & 0x80000000u ? falling : ~falling & 0x7fffffffu);
}

__device__ __forceinline__ Place least_of_warp(Place place) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const uint32_t upper = shfl_xor(kFullMask, static_cast<uint32_t>(place >> 32), lanes);
    const uint32_t lower = shfl_xor(kFullMask, static_cast<uint32_t>(place), lanes);
    const Place other = Place{upper} << 32 | lower;
    place = lesser(place, other);
  }
  return place;
}

// A slice's logits: thread t has those of vectors t, t + 256, ...
struct SliceLogits {
  float x[kSliceVectors * 4];
  unsigned first;  // id of the thread's first

  __device__ __forceinline__ static unsigned offset(unsigned i) {
    return i / 4 * (4 * kSliceThreads) + i % 4;
  }
  __device__ __forceinline__ unsigned id(unsigned i) const { return first + offset(i); }
  __device__ __forceinline__ void load(const float* row, unsigned slice, unsigned vocab) {
    first = slice * kSliceLogits + 4 * threadIdx.x;
#pragma unroll
    for (unsigned v = 0; v < kSliceVectors; v++) {
      uint4 words = make_uint4(0, 0, 0, 0);
      if (id(4 * v) < vocab) words = ld16(row + id(4 * v));
      x[4 * v] = bits_float(words.x);
      x[4 * v + 1] = bits_float(words.y);
      x[4 * v + 2] = bits_float(words.z);
      x[4 * v + 3] = bits_float(words.w);
    }
  }
};

}  // namespace headrace::cuda

#pragma once

#include "kernels/cuda/attention_stage.h"

// Device code of attention.cu: the arithmetic of a slice on a warp's fragments. In D and A
// fragments (PTX ISA, m16n8k16) a lane has rows g = lane / 4 and g + 8; t = lane % 4.
//
// 8-bit rows are read as if two elements were one of 16 bits: a lane gets four neighbouring dims
// 4t of K, which the queries' fragments follow, and two neighbouring dims of V, which go to two
// products, of the even and of the odd dims.

namespace headrace::cuda::attention {

__device__ __forceinline__ float minus_infinity() { return -INFINITY; }

// Queries and weights as operands.
template <kernels::KvType kKv>
__device__ __forceinline__ uint32_t pack_query(float lo, float hi) {
  return Type<kKv>::kBf16 ? floats_to_bf16s(lo, hi) : floats_to_halves(lo, hi);
}
template <kernels::KvType kKv>
__device__ __forceinline__ uint32_t pack_weight(float lo, float hi) {
  return Type<kKv>::kHalf ? floats_to_halves(lo, hi) : floats_to_bf16s(lo, hi);
}

// Two e4m3 in bytes 1 and 3: exponent and mantissa move to where they belong, and as the biases
// differ, what they then read is 2^8 (f16) or 2^120 (bf16) too small.
__device__ __forceinline__ uint32_t e4m3s_to_halves(uint32_t bytes) {
  const uint32_t small = (bytes & 0x80008000u) | ((bytes & 0x7f007f00u) >> 1);
  return fma_f16x2(small, 0x5c005c00u, 0x80008000u);
}
__device__ __forceinline__ uint32_t e4m3s_to_bf16s(uint32_t bytes) {
  const uint32_t small = (bytes & 0x80008000u) | ((bytes & 0x7f007f00u) >> 4);
  return fma_bf16x2(small, 0x7b807b80u, 0x80008000u);
}
// Two int8, plus 128, in bytes 0 and 2 and 0x64 in the others: the f16 1152 + each.
__device__ __forceinline__ uint32_t int8s_to_halves(uint32_t bytes) {
  return fma_f16x2(bytes, 0x3c003c00u, 0xe480e480u);
}

// Elements kLow and kHigh of four 8-bit ones, as operands for K (f16) or V (bf16).
template <kernels::KvType kKv, unsigned kLow, unsigned kHigh, bool kValue>
__device__ __forceinline__ uint32_t widen(uint32_t four) {
  if constexpr (Type<kKv>::kFp8) {
    const uint32_t bytes = prmt(four, 0, kHigh << 12 | 0x4 << 8 | kLow << 4 | 0x4);
    return kValue ? e4m3s_to_bf16s(bytes) : e4m3s_to_halves(bytes);
  } else {
    const uint32_t bytes =
        prmt(four ^ 0x80808080u, 0x64646464u, 0x4 << 12 | kHigh << 8 | 0x4 << 4 | kLow);
    const uint32_t halves = int8s_to_halves(bytes);
    if (!kValue) return halves;
    const float2 floats = halves_to_floats(halves);
    return floats_to_bf16s(floats.x, floats.y);
  }
}

template <kernels::KvType kKv>
__device__ __forceinline__ void multiply_keys(float (&s)[4], const uint32_t (&q)[4], uint32_t b0,
                                              uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  if constexpr (Type<kKv>::kBf16) {
    mma_bf16_16816(s, q, b);
  } else {
    mma_f16_16816(s, q, b);
  }
}
template <kernels::KvType kKv>
__device__ __forceinline__ void multiply_values(float (&o)[4], const uint32_t (&p)[4], uint32_t b0,
                                                uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  if constexpr (Type<kKv>::kHalf) {
    mma_f16_16816(o, p, b);
  } else {
    mma_bf16_16816(o, p, b);
  }
}

// A operands of 16 queries, 16 dims a step: in registers, or where those are scarce in shared
// memory, a lane's own four words in a row.
template <int kDims>
struct HeldQueries {
  uint32_t q[kDims / 16][4];
  __device__ __forceinline__ void take(uint32_t (&to)[4], int step) const {
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = q[step][i];
  }
};
struct SharedQueries {
  const uint4 (*of_step)[kWarp];
  __device__ __forceinline__ void take(uint32_t (&to)[4], int step) const {
    const uint4 v = ld16(&of_step[step][threadIdx.x % kWarp]);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  }
};

// Scores of keys `first` and on, eight a tile.
template <kernels::KvType kKv, int kDims, int kTiles, class Queries>
__device__ __forceinline__ void scores(float (&s)[kTiles][4], const Queries& queries,
                                       const unsigned char* keys, int first, int steps) {
  constexpr int kRowBytes = Slices<kKv, kDims>::kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int matrix = lane / 8;
#pragma unroll
  for (int n = 0; n < kTiles; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) s[n][e] = 0;
  }
#pragma unroll
  for (int k = 0; k < kDims / 16; k++) {
    if (k >= steps) continue;
    uint32_t q[4];
    queries.take(q, k);
    uint32_t r[4];
    if constexpr (Type<kKv>::kScaled) {
#pragma unroll
      for (int n = 0; n < kTiles; n += 4) {
        ldmatrix_x4(r, keys + place<kRowBytes>(first + n * 8 + lane, k));
#pragma unroll
        for (int i = 0; i < 4; i++) {
          multiply_keys<kKv>(s[n + i], q, widen<kKv, 0, 1, false>(r[i]),
                             widen<kKv, 2, 3, false>(r[i]));
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        const int row = first + n * 8 + matrix / 2 * 8 + lane % 8;
        ldmatrix_x4(r, keys + place<kRowBytes>(row, k * 2 + matrix % 2));
        multiply_keys<kKv>(s[n], q, r[0], r[1]);
        multiply_keys<kKv>(s[n + 1], q, r[2], r[3]);
      }
    }
  }
}

// Scales scores of 8-bit keys; keys behind a row's position get no weight. `base`: the position of
// the tiles' first key.
template <kernels::KvType kKv, int kTiles>
__device__ __forceinline__ void mask(float (&s)[kTiles][4], const float* scales, int base,
                                     const int (&position)[2]) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; n++) {
    const int key = n * 8 + column;
    if constexpr (Type<kKv>::kScaled) {
      const float x = scales[key];
      const float y = scales[key + 1];
      s[n][0] *= x;
      s[n][1] *= y;
      s[n][2] *= x;
      s[n][3] *= y;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (base + key + e % 2 > position[e / 2]) s[n][e] = minus_infinity();
    }
  }
}

// The larger of all lanes that share the rows.
template <int kTiles>
__device__ __forceinline__ void maxima(float (&m)[2], const float (&s)[kTiles][4]) {
  m[0] = m[1] = minus_infinity();
#pragma unroll
  for (int n = 0; n < kTiles; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) m[e / 2] = fmaxf(m[e / 2], s[n][e]);
  }
#pragma unroll
  for (int row = 0; row < 2; row++) {
    m[row] = fmaxf(m[row], shfl_xor(kFullMask, m[row], 1));
    m[row] = fmaxf(m[row], shfl_xor(kFullMask, m[row], 2));
  }
}

// What exponents are taken from: the largest score, or anything where there is none.
__device__ __forceinline__ float base_of(float m) { return m == minus_infinity() ? 0.0f : m; }

// Weights of 32 keys from tile kFirst on, and this lane's part of their sum.
template <int kFirst, int kTiles>
__device__ __forceinline__ void weigh(float (&sum)[2], float (&s)[kTiles][4], const float (&m)[2]) {
  sum[0] = sum[1] = 0;
#pragma unroll
  for (int n = kFirst; n < kFirst + 4; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      s[n][e] = fast_exp2(s[n][e] - base_of(m[e / 2]));
      sum[e / 2] += s[n][e];
    }
  }
}

// The slice's sum of a row from its four warps' worth of parts: everyone adds in this order.
__device__ __forceinline__ float whole_sum(const float (&part)[kWarps]) {
  float sum = ((part[0] + part[1]) + part[2]) + part[3];
  sum += shfl_xor(kFullMask, sum, 1);
  return sum + shfl_xor(kFullMask, sum, 2);
}

// Weights of 16 keys as an A operand, V's scales included. `scales`: of the first key.
template <kernels::KvType kKv>
__device__ __forceinline__ void pack_weights(uint32_t (&p)[4], const float (&low)[4],
                                             const float (&high)[4], const float* scales) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  if constexpr (Type<kKv>::kScaled) {
    const float2 a = make_float2(scales[column], scales[column + 1]);
    const float2 b = make_float2(scales[column + 8], scales[column + 9]);
    p[0] = pack_weight<kKv>(low[0] * a.x, low[1] * a.y);
    p[1] = pack_weight<kKv>(low[2] * a.x, low[3] * a.y);
    p[2] = pack_weight<kKv>(high[0] * b.x, high[1] * b.y);
    p[3] = pack_weight<kKv>(high[2] * b.x, high[3] * b.y);
  } else {
    p[0] = pack_weight<kKv>(low[0], low[1]);
    p[1] = pack_weight<kKv>(low[2], low[3]);
    p[2] = pack_weight<kKv>(high[0], high[1]);
    p[3] = pack_weight<kKv>(high[2], high[3]);
  }
}

// The slice's weighted values of kUnits units of 16 dims, from `unit` on.
template <kernels::KvType kKv, int kDims, int kUnits>
__device__ __forceinline__ void weighted(float (&o)[kUnits][2][4],
                                         const uint32_t (&p)[kKeys / 16][4],
                                         const unsigned char* values, int unit) {
  constexpr int kRowBytes = Slices<kKv, kDims>::kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int matrix = lane / 8;
#pragma unroll
  for (int u = 0; u < kUnits; u++) {
#pragma unroll
    for (int e = 0; e < 8; e++) o[u][e / 4][e % 4] = 0;
  }
  uint32_t r[4];
  if constexpr (Type<kKv>::kScaled) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; k += 2) {
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        ldmatrix_x4_trans(r, values + place<kRowBytes>(k * 16 + lane, unit + u));
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const uint32_t(&w)[4] = p[k + i];
          multiply_values<kKv>(o[u][0], w, widen<kKv, 0, 2, true>(r[2 * i]),
                               widen<kKv, 0, 2, true>(r[2 * i + 1]));
          multiply_values<kKv>(o[u][1], w, widen<kKv, 1, 3, true>(r[2 * i]),
                               widen<kKv, 1, 3, true>(r[2 * i + 1]));
        }
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < kKeys / 16; k++) {
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        const int row = k * 16 + matrix % 2 * 8 + lane % 8;
        ldmatrix_x4_trans(r, values + place<kRowBytes>(row, (unit + u) * 2 + matrix / 2));
        multiply_values<kKv>(o[u][0], p[k], r[0], r[1]);
        multiply_values<kKv>(o[u][1], p[k], r[2], r[3]);
      }
    }
  }
}

// One row (0: g, 1: g + 8) of a unit's results to `to`, which has the unit's 16 dims.
template <kernels::KvType kKv>
__device__ __forceinline__ void store_unit(float* to, const float (&o)[2][4], int row) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  const float a = o[0][2 * row], b = o[0][2 * row + 1];
  const float c = o[1][2 * row], d = o[1][2 * row + 1];
  if constexpr (Type<kKv>::kScaled) {
    st16(to + 4 * t, make_uint4(float_bits(a), float_bits(c), float_bits(b), float_bits(d)));
  } else {
    st8(to + 2 * t, make_uint2(float_bits(a), float_bits(b)));
    st8(to + 8 + 2 * t, make_uint2(float_bits(c), float_bits(d)));
  }
}

// A row's running result: largest score, sum of weights; its values are with the caller.
struct Running {
  float m = -INFINITY;
  float l = 0;
};

// Adds a slice's; the values become fma(slice's, b, a * running).
__device__ __forceinline__ void merge(Running& row, float m, float l, float& a, float& b) {
  const float top = fmaxf(row.m, m);
  a = fast_exp2(row.m - base_of(top));
  b = fast_exp2(m - base_of(top));
  row.l = fmaf(l, b, row.l * a);
  row.m = top;
}
__device__ __forceinline__ float merged(float running, float slice, float a, float b) {
  return fmaf(slice, b, running * a);
}
// Never minus zero, which would tell who added zeros to what.
__device__ __forceinline__ float finished(float value, float inverse) {
  return fmaf(value, inverse, 0.0f);
}

}  // namespace headrace::cuda::attention

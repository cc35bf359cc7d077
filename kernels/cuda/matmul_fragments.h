#pragma once

#include "kernels/cuda/dev.h"
#include "kernels/matrix.h"

// Device code of matmul_*.cu: units of weights (kernels/matrix_fragments.h) as operands of the
// tensor cores. A lane is g = lane / 4, t = lane % 4.

namespace headrace::cuda {

using kernels::WeightType;

constexpr unsigned kWarp = 32;
constexpr unsigned kLineBytes = 512;  // 16 bytes a lane
constexpr unsigned kScaleBytes = 64;  // of a unit

template <WeightType kType>
struct Unit {
  static constexpr bool kQuantized = kernels::quantized(kType);
  static constexpr bool kNibbles = kType == WeightType::kW4 || kType == WeightType::kW4Min;
  static constexpr bool kMinimum = kType == WeightType::kW4Min;
  // Products of bf16 that make one with a weight.
  static constexpr unsigned kParts = kType == WeightType::kF32   ? 3
                                     : kType == WeightType::kF16 ? 2
                                                                 : 1;
  static constexpr unsigned kLines = kNibbles                    ? 1
                                     : kType == WeightType::kW8  ? 2
                                     : kType == WeightType::kF32 ? 12
                                                                 : 4;
  static constexpr unsigned kTables = kMinimum ? 2 : kQuantized ? 1 : 0;
  static constexpr unsigned kBytes = kLines * kLineBytes + kTables * kScaleBytes;
  static constexpr unsigned kVectors = kBytes / 16;
};

// 32 k of a strip: the 16-row operands of both k16 steps, and what their sum is multiplied with.
template <WeightType kType>
struct Group {
  uint32_t a[2][Unit<kType>::kParts][4];
  float scale[2];  // row g, row g + 8
  float minimum[2];
};

__device__ __forceinline__ uint32_t plus(uint32_t bf16s, uint32_t more) {
  constexpr uint32_t kOnes = 0x3f803f80;
  return fma_bf16x2(bf16s, kOnes, more);
}

// Quants 2i and 2i + 1 of a word, less the zero point: setting bits makes them 128 + q, and what is
// too much is taken off. Both are exact.
template <bool kMinimum>
__device__ __forceinline__ uint32_t nibbles(uint32_t word, unsigned i) {
  constexpr uint32_t kLess = kMinimum ? 0xc300c300 : 0xc308c308;  // -128, -136
  return plus(lop3<0xea>(word >> (4 * i), 0x000f000fu, 0x43004300u), kLess);
}

// Bytes 2i and 2i + 1 of a word. The lower seven bits of one make 128 + them; its sign makes the
// -128 that is to be added -256.
__device__ __forceinline__ uint32_t bytes(uint32_t word, unsigned i) {
  const uint32_t two = prmt(word, 0, i == 0 ? 0x4140 : 0x4342);
  return plus(lop3<0xea>(two, 0x007f007fu, 0x43004300u), lop3<0xea>(two, 0x00800080u, 0xc300c300u));
}

// Two f16 as the bf16 of their upper eight bits, and what is left.
__device__ __forceinline__ void halves(uint32_t two, uint32_t& upper, uint32_t& lower) {
  constexpr uint32_t kUpperHalves = 0x7632;
  constexpr uint32_t kUpper = 0xffff0000;
  const float2 f = halves_to_floats(two);
  const uint32_t x = float_bits(f.x);
  const uint32_t y = float_bits(f.y);
  upper = prmt(x, y, kUpperHalves);
  lower = prmt(float_bits(f.x - bits_float(x & kUpper)), float_bits(f.y - bits_float(y & kUpper)),
               kUpperHalves);
}

__device__ __forceinline__ void set(uint32_t (&a)[4], const uint4& v) {
  a[0] = v.x;
  a[1] = v.y;
  a[2] = v.z;
  a[3] = v.w;
}

// The line of quants that serves both groups of a unit.
template <WeightType kType>
__device__ __forceinline__ uint4 load_nibbles(const unsigned char* unit, unsigned lane) {
  if constexpr (Unit<kType>::kNibbles) return ld16(unit + 16 * lane);
  return make_uint4(0, 0, 0, 0);
}

template <WeightType kType>
__device__ __forceinline__ void load_weights(Group<kType>& out, const unsigned char* unit,
                                             unsigned h, unsigned lane, const uint4& line) {
  if constexpr (Unit<kType>::kNibbles) {
    const uint32_t word = h == 0 ? line.x : line.z;
    const uint32_t below = h == 0 ? line.y : line.w;
#pragma unroll
    for (unsigned s = 0; s < 2; s++) {
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        out.a[s][0][2 * i] = nibbles<Unit<kType>::kMinimum>(word, 2 * s + i);
        out.a[s][0][2 * i + 1] = nibbles<Unit<kType>::kMinimum>(below, 2 * s + i);
      }
    }
  } else if constexpr (kType == WeightType::kW8) {
    const uint4 v = ld16(unit + kLineBytes * h + 16 * lane);
#pragma unroll
    for (unsigned s = 0; s < 2; s++) {
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        out.a[s][0][2 * i] = bytes(s == 0 ? v.x : v.y, i);
        out.a[s][0][2 * i + 1] = bytes(s == 0 ? v.z : v.w, i);
      }
    }
  } else {
#pragma unroll
    for (unsigned s = 0; s < 2; s++) {
      constexpr unsigned kStepLines = kType == WeightType::kF32 ? 3 : 1;
#pragma unroll
      for (unsigned part = 0; part < kStepLines; part++) {
        const unsigned at = (2 * h + s) * kStepLines + part;
        set(out.a[s][part], ld16(unit + kLineBytes * at + 16 * lane));
      }
      if constexpr (kType == WeightType::kF16) {
#pragma unroll
        for (unsigned i = 0; i < 4; i++) halves(out.a[s][0][i], out.a[s][0][i], out.a[s][1][i]);
      }
    }
  }
}

// Group `h` of a unit in shared memory; `line` is what load_nibbles gave of it.
template <WeightType kType>
__device__ __forceinline__ Group<kType> load_group(const unsigned char* unit, unsigned h,
                                                   unsigned lane, const uint4& line) {
  Group<kType> out;
  load_weights(out, unit, h, lane, line);
  if constexpr (Unit<kType>::kQuantized) {
    const unsigned char* table = unit + Unit<kType>::kLines * kLineBytes + 32 * h + lane / 4 * 4;
    const float2 scale = halves_to_floats(*reinterpret_cast<const uint32_t*>(table));
    out.scale[0] = scale.x;
    out.scale[1] = scale.y;
    if constexpr (Unit<kType>::kMinimum) {
      const float2 minimum =
          halves_to_floats(*reinterpret_cast<const uint32_t*>(table + kScaleBytes));
      out.minimum[0] = minimum.x;
      out.minimum[1] = minimum.y;
    }
  }
  return out;
}

// piece += group x, for kTiles times eight rows of x: x[j] is what the lane has of row 8j + g, and
// the sums are those of rows 8j + 2t and 8j + 2t + 1, for both groups of a unit (x, y). Products of
// different tiles stand next to each other, so that none waits for the one before.
template <WeightType kType, unsigned kTiles>
__device__ __forceinline__ void add_group(float (&piece)[kTiles][4], const Group<kType>& group,
                                          const uint4 (&x)[kTiles],
                                          const float2 (&x_sums)[kTiles][2], unsigned h) {
  constexpr unsigned kParts = Unit<kType>::kParts;
  float sums[kTiles][4] = {};
#pragma unroll
  for (unsigned s = 0; s < 2; s++) {
#pragma unroll
    for (unsigned part = 0; part < kParts; part++) {
#pragma unroll
      for (unsigned j = 0; j < kTiles; j++) {
        const uint32_t b[2] = {s == 0 ? x[j].x : x[j].z, s == 0 ? x[j].y : x[j].w};
        if constexpr (Unit<kType>::kQuantized) {
          mma_bf16_16816(sums[j], group.a[s][part], b);
        } else {
          mma_bf16_16816(piece[j], group.a[s][part], b);
        }
      }
    }
  }
  if constexpr (Unit<kType>::kQuantized) {
#pragma unroll
    for (unsigned j = 0; j < kTiles; j++) {
#pragma unroll
      for (unsigned i = 0; i < 4; i++) {
        piece[j][i] = fmaf(group.scale[i / 2], sums[j][i], piece[j][i]);
        if constexpr (Unit<kType>::kMinimum) {
          const float2 both = x_sums[j][i % 2];
          piece[j][i] = fmaf(group.minimum[i / 2], h == 0 ? both.x : both.y, piece[j][i]);
        }
      }
    }
  }
}

}  // namespace headrace::cuda

#pragma once

#include "kernels/activation.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/matmul_fragments.h"
#include "kernels/cuda/matmul_spread.h"

// What both kernels of matmul.h share: the product they are given, how K is cut, and how results
// leave. A tile is the sums of a strip and eight rows of x, as the tensor cores give them: lane
// (g, t) has rows 2t and 2t + 1 of x, for weight rows g (0, 1) and g + 8 (2, 3) of the strip.

namespace headrace::cuda {

struct Product {
  const unsigned char* weights = nullptr;
  WeightType type = WeightType::kF32;
  unsigned n = 0;  // rows of weights
  unsigned strips = 0;
  unsigned units = 0;
  unsigned piece_units = 0;
  unsigned pieces = 0;
  const uint16_t* x = nullptr;  // [rows, 64 units]
  const float* sums = nullptr;  // [rows, 2 units]
  unsigned rows = 0;
  // Not paired:
  float* y = nullptr;
  int64_t stride = 0;
  bool add = false;
  // Paired: [rows, n/2]
  bool paired = false;
  unsigned out_pitch = 0;  // of bf16
  kernels::RowsOut out;
};

// More than kStreamRowsMax rows; the product is one that both kernels do.
cudaError_t enqueue_tile(const Product& p, const Context& context);

// Sums of each 32 of x, of a unit's two groups (x, y), for rows 8j + 2t and the next from `first`.
template <WeightType kType, unsigned kTiles>
__device__ __forceinline__ void load_sums(float2 (&out)[kTiles][2], const Product& p,
                                          unsigned first, unsigned unit, unsigned lane) {
  if constexpr (Unit<kType>::kMinimum) {
#pragma unroll
    for (unsigned j = 0; j < kTiles; j++) {
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        const unsigned row = first + kTileRows * j + lane % 4 * 2 + i;
        uint2 v = make_uint2(0, 0);
        if (row < p.rows && unit < p.units)
          v = ld8(p.sums + size_t{row} * (2 * p.units) + 2 * unit);
        out[j][i] = make_float2(bits_float(v.x), bits_float(v.y));
      }
    }
  }
}

// ---- y = w x, y += w x

__device__ __forceinline__ void store_tile(const Product& p, unsigned strip, unsigned first,
                                           const float (&sums)[4], unsigned lane) {
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    const unsigned row = first + lane % 4 * 2 + i % 2;
    const unsigned n = strip * 16 + i / 2 * 8 + lane / 4;
    if (row >= p.rows || n >= p.n) continue;
    float* y = p.y + static_cast<int64_t>(row) * p.stride + n;
    *y = p.add ? *y + sums[i] : sums[i];
  }
}

// ---- silu(gate) up: the gate is weight row g, up is g + 8
//
// bf16 results of four strips, 32 columns, wait in shared memory, so that whole sectors and sums of
// 32 leave it. A row of 64 bytes and 16 more: neither side meets a bank twice.

constexpr unsigned kQuad = 4;  // strips
constexpr unsigned kQuadColumns = 32;
constexpr unsigned kQuadRowBytes = 80;
__device__ __host__ constexpr unsigned quad_bytes(unsigned tiles) {
  return tiles * kTileRows * kQuadRowBytes;
}

// x / (1 + e^-x). Far below zero the power is infinite and the quotient zero, as it should be.
__device__ __forceinline__ float gated(float gate, float up) {
  constexpr float kLog2E = 1.44269504088896340736f;
  return gate / (1.0f + fast_exp2(-gate * kLog2E)) * up;
}

// Strip `place` of its four; x rows from `first`, which is row `inside` of the quad. f32 results
// leave at once.
__device__ __forceinline__ void put_tile(const Product& p, unsigned char* quad, unsigned strip,
                                         unsigned place, unsigned first, unsigned inside,
                                         const float (&sums)[4], unsigned lane) {
  const unsigned g = lane / 4;
  const unsigned t = lane % 4;
  const float values[2] = {gated(sums[0], sums[2]), gated(sums[1], sums[3])};
  const unsigned column = strip * 8 + g;
#pragma unroll
  for (unsigned i = 0; i < 2; i++) {
    const unsigned row = first + 2 * t + i;
    if (p.out.f32 == nullptr || row >= p.rows || column >= p.n / 2) continue;
    p.out.f32[size_t{row} * (p.n / 2) + column] = values[i];
  }
  if (p.out.bf16 == nullptr) return;
  // Lanes of neighbouring columns swap, so that each has both columns of one row.
  const bool odd = g % 2 != 0;
  const float other = shfl_xor(kFullMask, odd ? values[0] : values[1], 4);
  const uint32_t two = odd ? floats_to_bf16s(other, values[1]) : floats_to_bf16s(values[0], other);
  unsigned char* to = quad + (inside + 2 * t + g % 2) * kQuadRowBytes + (8 * place + g / 2 * 2) * 2;
  *reinterpret_cast<uint32_t*>(to) = two;
}

// Eight rows of a quad whose columns begin at `column`, by one warp: rows of neighbouring lanes.
__device__ __forceinline__ void deliver_quad(const Product& p, const unsigned char* quad,
                                             unsigned column, unsigned first, unsigned inside,
                                             unsigned lane) {
  const unsigned part = lane / kTileRows;
  const uint4 v = ld16(quad + (inside + lane % kTileRows) * kQuadRowBytes + 16 * part);
  const float2 a = bf16s_to_floats(v.x);
  const float2 b = bf16s_to_floats(v.y);
  const float2 c = bf16s_to_floats(v.z);
  const float2 d = bf16s_to_floats(v.w);
  float sum = ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
  sum += shfl_xor(kFullMask, sum, 8);
  sum += shfl_xor(kFullMask, sum, 16);
  const unsigned row = first + lane % kTileRows;
  if (row >= p.rows || column >= p.out_pitch) return;
  const size_t at = size_t{row} * p.out_pitch + column;
  st16(p.out.bf16 + at + 8 * part, v);
  if (part == 0) p.out.sums[at / kQuadColumns] = sum;
}

}  // namespace headrace::cuda

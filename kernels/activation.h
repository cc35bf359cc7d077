#pragma once

#include <cstdint>

namespace headrace::kernels {

// 32 activations as int8: x[i] ~ scale * q[i] with scale = max|x| / 127 and q = x * (127 / max|x|)
// rounded to nearest, ties to even, all in f32; so q is in [-127, 127]. A block below kQuantZero is
// all zero, scale included, since 127 / max|x| would overflow. A block with a NaN or an infinity
// has that for its scale and q = 0: every product with it is NaN, and sampling reports it.
struct QuantBlock {
  int8_t q[32];
  float scale;
  int32_t sum;  // of q: the zero point's and the minimum's share
};
static_assert(sizeof(QuantBlock) == 40);
constexpr float kQuantZero = 1e-30f;

// Floats from row to row of bf16 activations; what lies behind the width is zero.
constexpr int64_t bf16_pitch(int64_t width) { return (width + 63) / 64 * 64; }

// Rows of activations, as f32, as blocks or as bf16: exactly one of the three is set. The reference
// device uses f32; devices that quantize activations use blocks for products with quantized
// weights; the GPU's tensor cores take bf16.
struct Rows {
  const float* f32 = nullptr;      // [rows, width]
  const QuantBlock* q = nullptr;   // [rows, ceil(width/32)]
  const uint16_t* bf16 = nullptr;  // [rows, bf16_pitch(width)], each the f32 to nearest even
  const float* sums = nullptr;     // [rows, pitch/32]: f32 sum of each 32 of the bf16 values
};
// The same as a destination; several may be set. `bf16` and `sums` go together.
struct RowsOut {
  float* f32 = nullptr;
  QuantBlock* q = nullptr;  // width is then a multiple of 32
  uint16_t* bf16 = nullptr;
  float* sums = nullptr;
};

}  // namespace headrace::kernels

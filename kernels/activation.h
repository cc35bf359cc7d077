#pragma once

#include <cstdint>

namespace headrace::kernels {

// 32 activations as int8: x[i] ~ scale * q[i]. scale = max|x| / 127, q = round to nearest even.
struct QuantBlock {
  int8_t q[32];
  float scale;
  int32_t sum;  // of q: the zero point's and the minimum's share
};
static_assert(sizeof(QuantBlock) == 40);

// Rows of activations, as f32 or as blocks: exactly one pointer is set. The reference device uses
// f32, devices that quantize activations use blocks for products with quantized weights.
struct Rows {
  const float* f32 = nullptr;     // [rows, width]
  const QuantBlock* q = nullptr;  // [rows, ceil(width/32)]
};
// The same as a destination; both pointers may be set.
struct RowsOut {
  float* f32 = nullptr;
  QuantBlock* q = nullptr;  // width is then a multiple of 32
};

}  // namespace headrace::kernels

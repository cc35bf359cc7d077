#pragma once

// Bits, arithmetic and conversions of the facade's emulated body: plain functions of their
// arguments. Conversions are the toolkit's own host code.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <vector_functions.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace headrace::cuda {

// Bit i of the table is the result where the bits of a, b, c spell i.
template <unsigned kTable>
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  static_assert(kTable < 256);
  uint32_t result = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if (kTable >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

// Each nibble of the selector picks a byte of b:a; its top bit spreads that byte's sign.
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i);
    uint32_t byte = static_cast<uint32_t>(bytes >> ((pick & 7) * 8)) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_rsqrt(float x) { return 1.0f / std::sqrt(x); }

inline float half_to_float(uint16_t h) { return __half2float(__half_raw{h}); }
inline uint16_t float_to_half(float x) { return __half_raw(__float2half_rn(x)).x; }
inline float bf16_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }
inline uint16_t float_to_bf16(float x) { return __nv_bfloat16_raw(__float2bfloat16_rn(x)).x; }

inline float2 halves_to_floats(uint32_t h) {
  return make_float2(half_to_float(static_cast<uint16_t>(h)),
                     half_to_float(static_cast<uint16_t>(h >> 16)));
}
inline uint32_t floats_to_halves(float lo, float hi) {
  return float_to_half(lo) | uint32_t{float_to_half(hi)} << 16;
}
inline float2 bf16s_to_floats(uint32_t b) {
  return make_float2(bf16_to_float(static_cast<uint16_t>(b)),
                     bf16_to_float(static_cast<uint16_t>(b >> 16)));
}
inline uint32_t floats_to_bf16s(float lo, float hi) {
  return float_to_bf16(lo) | uint32_t{float_to_bf16(hi)} << 16;
}
inline uint32_t float_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float bits_float(uint32_t b) { return std::bit_cast<float>(b); }
inline float2 e4m3s_to_floats(uint16_t e) {
  const auto one = [](unsigned bits) {
    return __half2float(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(bits), __NV_E4M3));
  };
  return make_float2(one(e & 0xff), one(e >> 8));
}
inline uint16_t floats_to_e4m3s(float lo, float hi) {
  const unsigned low = __nv_cvt_float_to_fp8(lo, __NV_SATFINITE, __NV_E4M3);
  const unsigned high = __nv_cvt_float_to_fp8(hi, __NV_SATFINITE, __NV_E4M3);
  return static_cast<uint16_t>(low | high << 8);
}

// One rounding: the product and sum of 16-bit floats are exact in double, but for sums too far
// apart to matter to a 16-bit result.
inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  const float2 x = halves_to_floats(a);
  const float2 y = halves_to_floats(b);
  const float2 z = halves_to_floats(c);
  const auto one = [](float p, float q, float r) -> uint32_t {
    return __half_raw(__double2half(static_cast<double>(p) * q + r)).x;
  };
  return one(x.x, y.x, z.x) | one(x.y, y.y, z.y) << 16;
}
inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  const float2 x = bf16s_to_floats(a);
  const float2 y = bf16s_to_floats(b);
  const float2 z = bf16s_to_floats(c);
  const auto one = [](float p, float q, float r) -> uint32_t {
    return __nv_bfloat16_raw(__double2bfloat16(static_cast<double>(p) * q + r)).x;
  };
  return one(x.x, y.x, z.x) | one(x.y, y.y, z.y) << 16;
}

}  // namespace headrace::cuda

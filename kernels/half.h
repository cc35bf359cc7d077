#pragma once

#include <bit>
#include <cstdint>

namespace headrace::kernels {

// IEEE 754 binary16 and bfloat16 to f32, exact for every pattern: subnormals, infinities and NaN
// included. Plain integer code, so that the oldest processor gives what F16C gives.
inline float f32_from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = h & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity or NaN; a signalling NaN turns quiet, as in F16C
    const uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (rest & 0x3ffu) << 13);
  }
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
  // Zero and subnormals are rest * 2^-24, which f32 holds exactly.
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline float f32_from_bf16(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

}  // namespace headrace::kernels

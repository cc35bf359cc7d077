#pragma once

#include <bit>
#include <cstdint>

// IEEE 754 binary16, by hand: for files without F16C. Same bits as the instructions, NaN included.
// `static`, so that a file with its own instruction set keeps its copy to itself.

namespace headrace::kernels {

static inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  // Exponent and mantissa moved into place read 2^-112 of the value, subnormals included.
  const uint32_t shifted = static_cast<uint32_t>(h & 0x7fff) << 13;
  uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * 0x1p112f);
  if (shifted >= 0x0f800000) bits = shifted | 0x7f800000;
  if (shifted > 0x0f800000) bits |= 0x00400000;  // a NaN becomes quiet
  return std::bit_cast<float>(sign | bits);
}

// Rounds to nearest, ties to even; overflow becomes infinity.
static inline uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t h;
  if (magnitude > 0x7f800000) {
    h = 0x7e00 | (magnitude >> 13 & 0x1ff);
  } else if (magnitude >= 0x47800000) {  // 2^16
    h = 0x7c00;
  } else if (magnitude < 0x38800000) {  // 2^-14: 0.5 has the spacing of f16 subnormals
    h = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  } else {
    h = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
  }
  return static_cast<uint16_t>(sign | h);
}

static inline float bf16_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// Rounds to nearest, ties to even; a NaN stays one.
static inline uint16_t float_to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace headrace::kernels

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// bf16 on the host, by its definition, and values to compute with.

namespace headrace::simt {

inline double bf16_value(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// Normally distributed, rounded towards zero: each is exactly a bf16.
inline std::vector<uint16_t> random_bf16s(size_t count, uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<uint16_t> out(count);
  for (uint16_t& b : out) {
    b = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16);
  }
  return out;
}

}  // namespace headrace::simt

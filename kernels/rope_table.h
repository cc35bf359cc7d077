#pragma once

#include <cstdint>

namespace headrace::kernels {

// Of the table for so many positions.
constexpr uint64_t rope_bytes(uint64_t positions, uint64_t rotated) {
  return positions * rotated * sizeof(float);
}

// Fills out[context][rotated/2][2] with cos and sin of position * f(i), where
//   f(i) = base^(-2i / rotated) / freq_factors[i] / linear_factor
// (Su et al., "RoFormer", 2021; linear scaling divides positions; freq_factors as in GGUF's
// rope_freqs.weight, null = ones). Angles are made in double and must stay below kAngleMax.
// context >= 0, rotated even, base > 0, factors finite and > 0.
void build_rope(int32_t context, int32_t rotated, double base, double linear_factor,
                const float* freq_factors, float* out);

}  // namespace headrace::kernels

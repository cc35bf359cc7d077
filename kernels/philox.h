#pragma once

#include <array>
#include <cstdint>

namespace headrace::kernels {

// Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011. A bijection of the counter keyed by the key, so any draw can be had without those
// before.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The one uniform of generated token `index`, in [0, 1): the top 53 bits of words 0 and 1 of
// philox({index, 0, 0, 0}, seed), word 0 the upper.
double uniform(uint64_t seed, uint32_t index);

}  // namespace headrace::kernels

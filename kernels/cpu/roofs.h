#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::kernels {

// Loops that do nothing but what a limit is made of, for each path. The results only keep the
// compiler from leaving the work out.
struct Roofs {
  // Reads `bytes` (a multiple of 64) in four streams.
  uint64_t (*read)(const std::byte* from, size_t bytes);
  // `rounds` rounds of the products that matmul's inner loop is made of.
  uint64_t (*int8)(int64_t rounds);
  int64_t int8_ops;  // in a round; a multiply-add is two
  double (*f32)(int64_t rounds);
  int64_t f32_flops;
};

Roofs roofs_portable();
Roofs roofs_avx2();
Roofs roofs_avx512();
Roofs roofs_amx();

}  // namespace headrace::kernels

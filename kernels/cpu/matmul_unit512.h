#pragma once

#include <immintrin.h>

#include "kernels/cpu/matmul_unit.h"

// What the bodies of 512-bit vectors share: scales, and the way of a vector of results to memory.
// Only for files of that instruction set.

namespace headrace::kernels {
namespace {

constexpr int kHalf = 16;  // rows of a vector

HEADRACE_INLINE __m512 one_float(const std::byte* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_ps(v);
}
HEADRACE_INLINE __m512 halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}

// Rows [row, row + 16) of token t, as far as they exist.
HEADRACE_INLINE void store(const TileJob& job, int t, int row, __m512 v) {
  const int left = job.rows - row;
  if (left <= 0) return;
  float* y = job.y + t * job.stride + row;
  const auto mask = static_cast<__mmask16>(left >= kHalf ? 0xffff : (1 << left) - 1);
  if (job.add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), v);
  _mm512_mask_storeu_ps(y, mask, v);
}

}  // namespace
}  // namespace headrace::kernels

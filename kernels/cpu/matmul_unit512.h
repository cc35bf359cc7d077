#pragma once

#include <immintrin.h>

#include "kernels/cpu/matmul_tiles.h"

// What the bodies of 512-bit vectors share: how a unit of quantized weights lies in lines, its
// scales, and the way of a vector of results to memory. Only for files of that instruction set.

#if !defined(__clang__)
#define HEADRACE_UNROLL _Pragma("GCC unroll 16")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
// Every access checked and every loop unrolled would take minutes to compile.
#define HEADRACE_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define HEADRACE_UNROLL _Pragma("unroll")
#endif
#define HEADRACE_INLINE inline __attribute__((always_inline))

namespace headrace::kernels {
namespace {

constexpr int kLine = 64;
constexpr int kHalf = 16;  // rows of a vector

template <WeightType kType>
struct Unit {
  static constexpr bool kBytes = kType == WeightType::kW8;
  static constexpr bool kMinimum = kType == WeightType::kW4Min;
  static constexpr int kFirst = kMinimum ? 2 * kLine : kLine;  // of the lines
  static constexpr int kLines = kBytes ? 8 : 4;                // for 16 rows
  static constexpr int kSize = kFirst + 2 * kLines * kLine;
  static constexpr int kAhead = kBytes ? 3 : 4;  // units to fetch ahead in each stream
};

HEADRACE_INLINE __m512 one_float(const std::byte* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_ps(v);
}
HEADRACE_INLINE __m512 halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}

// Fetches as much as one of `units` units at `w`, the one with number u, of what lies behind them into
// the second-level cache, from four places at once: as four streams it comes faster than as one. Of
// each unit it takes lines [kFrom, kTo): one pass that calls it with each of its units has fetched
// that share of as many as these, and two passes with a half each fetch at an even rate. Past the
// end of the matrix it is without effect, so its addresses are not kept within bounds.
template <WeightType kType, int kFrom = 0, int kTo = Unit<kType>::kSize / kLine>
HEADRACE_INLINE void fetch_next(const std::byte* w, int units, int u) {
  constexpr size_t kPlaces = 4;
  const size_t bytes = static_cast<size_t>(units) * Unit<kType>::kSize;
  const uintptr_t next = reinterpret_cast<uintptr_t>(w) + bytes;
  const size_t each = bytes / kPlaces / kLine * kLine;
  HEADRACE_UNROLL
  for (int l = 0; l < kTo - kFrom; l++) {
    const auto i = static_cast<size_t>(kFrom * units + u * (kTo - kFrom) + l);
    const uintptr_t at = next + i % kPlaces * each + i / kPlaces * kLine;
    _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
  }
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

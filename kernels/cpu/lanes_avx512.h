#pragma once

#include <immintrin.h>

#include <cstdint>

// Sixteen floats (Lanes) or int32 (Ints) side by side; see lanes_portable.h for the meaning of each
// function. One of the three lanes_*.h is included per file, all in an anonymous namespace.
// A lane that a partial load leaves out is zero.

namespace headrace::kernels {
namespace {

#define LANES_FN [[maybe_unused]] static inline __attribute__((always_inline))

struct Lanes {
  __m512 v;
};
struct Ints {
  __m512i v;
};

// How many Lanes fit beside each other in the registers, less a few for operands.
constexpr int kLaneRegisters = 32;

LANES_FN __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

LANES_FN Lanes splat(float x) { return {_mm512_set1_ps(x)}; }
LANES_FN Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
LANES_FN Lanes load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
LANES_FN void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
LANES_FN void store(float* p, Lanes a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
LANES_FN Lanes load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LANES_FN Lanes load_half(const uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
LANES_FN void store_half(uint16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

LANES_FN Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
LANES_FN Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
LANES_FN Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
LANES_FN Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
LANES_FN Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LANES_FN Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
LANES_FN Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
LANES_FN uint32_t equal(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
LANES_FN Lanes even_twice(Lanes a) { return {_mm512_moveldup_ps(a.v)}; }
LANES_FN Lanes odd_twice(Lanes a) { return {_mm512_movehdup_ps(a.v)}; }
LANES_FN Lanes swap_pairs(Lanes a) { return {_mm512_permute_ps(a.v, 0xb1)}; }

LANES_FN Ints splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
LANES_FN Ints round_to_int(Lanes a) { return {_mm512_cvtps_epi32(a.v)}; }
LANES_FN Lanes to_float(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
LANES_FN Ints bits(Lanes a) { return {_mm512_castps_si512(a.v)}; }
LANES_FN Lanes from_bits(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
LANES_FN Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
LANES_FN Ints sub(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LANES_FN Ints and_bits(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
LANES_FN Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
LANES_FN Ints shift_left_23(Ints a) { return {_mm512_slli_epi32(a.v, 23)}; }
LANES_FN Ints halve(Ints a) { return {_mm512_srai_epi32(a.v, 1)}; }
LANES_FN void store_bytes(int8_t* p, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

LANES_FN __m128 fold(Lanes a) {  // lanes j, j+4, j+8, j+12 as ((j + j+8) + (j+4 + j+12))
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
LANES_FN float reduce_add(Lanes a) {
  const __m128 q = fold(a);
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LANES_FN float reduce_max(Lanes a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
LANES_FN __m128i narrow_sum(__m128i q) {
  const __m128i d = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_add_epi32(d, _mm_shuffle_epi32(d, 0xb1));
}
LANES_FN int32_t reduce_add(Ints a) {
  const __m256i h =
      _mm256_add_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
  return _mm_cvtsi128_si32(
      narrow_sum(_mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1))));
}
LANES_FN int32_t reduce_max(Ints a) {
  const __m256i h =
      _mm256_max_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
  const __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  const __m128i d = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(d, _mm_shuffle_epi32(d, 0xb1)));
}

LANES_FN float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
LANES_FN void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace headrace::kernels

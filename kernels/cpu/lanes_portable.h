#pragma once

#include <smmintrin.h>

#include <cstdint>

#include "kernels/half.h"

// Sixteen floats (Lanes) or int32 (Ints) side by side on x86-64-v2, where there is neither a fused
// multiply-add nor f16: both are done by hand with the same bits. lanes_avx2.h and lanes_avx512.h
// hold the same functions; a body is written once over them and a file includes one of the three.
// Everything is local to the file, so no file can pick up another's instructions.

namespace headrace::kernels {
namespace {

#define LANES_FN [[maybe_unused]] static inline __attribute__((always_inline))

struct Lanes {
  __m128 q[4];
};
struct Ints {
  __m128i q[4];
};

// How many Lanes fit beside each other in the registers.
constexpr int kLaneRegisters = 4;

template <class F>
LANES_FN Lanes each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <class F>
LANES_FN Ints each_int(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

LANES_FN Lanes splat(float x) {
  return each([&](int) { return _mm_set1_ps(x); });
}
LANES_FN Lanes load(const float* p) {
  return each([&](int i) { return _mm_loadu_ps(p + 4 * i); });
}
// The first n floats, n in [0, 16]; the other lanes are zero.
LANES_FN Lanes load(const float* p, int n) {
  float whole[16] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return load(whole);
}
LANES_FN void store(float* p, Lanes a) {
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(p + 4 * i, a.q[i]);
}
LANES_FN void store(float* p, Lanes a, int n) {
  float whole[16];
  store(whole, a);
  for (int i = 0; i < n; ++i) p[i] = whole[i];
}

LANES_FN __m128 widen_half(__m128i h) {  // see half_to_float
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(h, _mm_set1_epi32(0x8000)), 16);
  const __m128i shifted = _mm_slli_epi32(_mm_and_si128(h, _mm_set1_epi32(0x7fff)), 13);
  const __m128 value = _mm_mul_ps(_mm_castsi128_ps(shifted), _mm_set1_ps(0x1p112f));
  const __m128i special = _mm_cmpgt_epi32(shifted, _mm_set1_epi32(0x0f7fffff));
  const __m128i nan = _mm_cmpgt_epi32(shifted, _mm_set1_epi32(0x0f800000));
  __m128i out = _mm_castps_si128(value);
  out = _mm_blendv_epi8(out, _mm_or_si128(shifted, _mm_set1_epi32(0x7f800000)), special);
  out = _mm_or_si128(out, _mm_and_si128(nan, _mm_set1_epi32(0x00400000)));
  return _mm_castsi128_ps(_mm_or_si128(out, sign));
}
LANES_FN Lanes load_half(const uint16_t* p) {
  return each([&](int i) {
    return widen_half(
        _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 4 * i))));
  });
}
LANES_FN Lanes load_half(const uint16_t* p, int n) {
  uint16_t whole[16] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return load_half(whole);
}
LANES_FN void store_half(uint16_t* p, Lanes a) {
  float whole[16];
  store(whole, a);
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(whole[i]);
}

LANES_FN Lanes add(Lanes a, Lanes b) {
  return each([&](int i) { return _mm_add_ps(a.q[i], b.q[i]); });
}
LANES_FN Lanes sub(Lanes a, Lanes b) {
  return each([&](int i) { return _mm_sub_ps(a.q[i], b.q[i]); });
}
LANES_FN Lanes mul(Lanes a, Lanes b) {
  return each([&](int i) { return _mm_mul_ps(a.q[i], b.q[i]); });
}
LANES_FN Lanes div(Lanes a, Lanes b) {
  return each([&](int i) { return _mm_div_ps(a.q[i], b.q[i]); });
}

// a * b + c, rounded once. The product of two floats is exact in double; the sum is rounded to odd
// there (if it is inexact, its last bit is set), which makes the second rounding right
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
LANES_FN __m128d odd_sum(__m128d p, __m128d c) {
  const __m128d s = _mm_add_pd(p, c);
  const __m128d back = _mm_sub_pd(s, p);
  const __m128d error = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(s, back)), _mm_sub_pd(c, back));
  const __m128d zero = _mm_setzero_pd();
  const __m128d inexact = _mm_or_pd(_mm_cmplt_pd(error, zero), _mm_cmpgt_pd(error, zero));
  const __m128i one = _mm_set1_epi64x(1);
  const __m128i si = _mm_castpd_si128(s);
  const __m128i even = _mm_sub_epi64(_mm_and_si128(si, one), one);
  const __m128i away = _mm_srli_epi64(_mm_xor_si128(si, _mm_castpd_si128(error)), 63);
  const __m128i step = _mm_sub_epi64(one, _mm_add_epi64(away, away));
  const __m128i fix = _mm_and_si128(_mm_and_si128(step, even), _mm_castpd_si128(inexact));
  return _mm_castsi128_pd(_mm_add_epi64(si, fix));
}
LANES_FN __m128 fma4(__m128 a, __m128 b, __m128 c) {
  const __m128d low = odd_sum(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c));
  const __m128 a2 = _mm_movehl_ps(a, a), b2 = _mm_movehl_ps(b, b), c2 = _mm_movehl_ps(c, c);
  const __m128d high = odd_sum(_mm_mul_pd(_mm_cvtps_pd(a2), _mm_cvtps_pd(b2)), _mm_cvtps_pd(c2));
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
LANES_FN Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each([&](int i) { return fma4(a.q[i], b.q[i], c.q[i]); });
}

// a > b ? a : b, so b if either is NaN. min alike.
LANES_FN Lanes max(Lanes a, Lanes b) {
  return each([&](int i) { return _mm_max_ps(a.q[i], b.q[i]); });
}
LANES_FN Lanes min(Lanes a, Lanes b) {
  return each([&](int i) { return _mm_min_ps(a.q[i], b.q[i]); });
}
// Bit j is set if lane j is equal.
LANES_FN uint32_t equal(Lanes a, Lanes b) {
  uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    mask |= static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpeq_ps(a.q[i], b.q[i]))) << (4 * i);
  }
  return mask;
}
// Lanes 0 0 2 2 .., 1 1 3 3 .. and 1 0 3 2 ..
LANES_FN Lanes even_twice(Lanes a) {
  return each([&](int i) { return _mm_moveldup_ps(a.q[i]); });
}
LANES_FN Lanes odd_twice(Lanes a) {
  return each([&](int i) { return _mm_movehdup_ps(a.q[i]); });
}
LANES_FN Lanes swap_pairs(Lanes a) {
  return each([&](int i) { return _mm_shuffle_ps(a.q[i], a.q[i], 0xb1); });
}

LANES_FN Ints splat_int(int32_t x) {
  return each_int([&](int) { return _mm_set1_epi32(x); });
}
// Nearest, ties to even; NaN and what does not fit give INT32_MIN.
LANES_FN Ints round_to_int(Lanes a) {
  return each_int([&](int i) { return _mm_cvtps_epi32(a.q[i]); });
}
LANES_FN Lanes to_float(Ints a) {
  return each([&](int i) { return _mm_cvtepi32_ps(a.q[i]); });
}
LANES_FN Ints bits(Lanes a) {
  return each_int([&](int i) { return _mm_castps_si128(a.q[i]); });
}
LANES_FN Lanes from_bits(Ints a) {
  return each([&](int i) { return _mm_castsi128_ps(a.q[i]); });
}
LANES_FN Ints add(Ints a, Ints b) {
  return each_int([&](int i) { return _mm_add_epi32(a.q[i], b.q[i]); });
}
LANES_FN Ints sub(Ints a, Ints b) {
  return each_int([&](int i) { return _mm_sub_epi32(a.q[i], b.q[i]); });
}
LANES_FN Ints and_bits(Ints a, Ints b) {
  return each_int([&](int i) { return _mm_and_si128(a.q[i], b.q[i]); });
}
LANES_FN Ints max(Ints a, Ints b) {
  return each_int([&](int i) { return _mm_max_epi32(a.q[i], b.q[i]); });
}
LANES_FN Ints shift_left_23(Ints a) {
  return each_int([&](int i) { return _mm_slli_epi32(a.q[i], 23); });
}
// Arithmetic shift: rounds towards minus infinity.
LANES_FN Ints halve(Ints a) {
  return each_int([&](int i) { return _mm_srai_epi32(a.q[i], 1); });
}
// Sixteen int8; each lane is within [-128, 127].
LANES_FN void store_bytes(int8_t* p, Ints a) {
  const __m128i low = _mm_packs_epi32(a.q[0], a.q[1]), high = _mm_packs_epi32(a.q[2], a.q[3]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(low, high));
}

// The fixed tree: lanes 8 apart are added first, then 4, 2, 1.
LANES_FN float reduce_add(Lanes a) {
  const __m128 q = _mm_add_ps(_mm_add_ps(a.q[0], a.q[2]), _mm_add_ps(a.q[1], a.q[3]));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LANES_FN float reduce_max(Lanes a) {
  const __m128 q = _mm_max_ps(_mm_max_ps(a.q[0], a.q[2]), _mm_max_ps(a.q[1], a.q[3]));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
LANES_FN int32_t reduce_add(Ints a) {
  const __m128i q = _mm_add_epi32(_mm_add_epi32(a.q[0], a.q[2]), _mm_add_epi32(a.q[1], a.q[3]));
  const __m128i d = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(d, _mm_shuffle_epi32(d, 0xb1)));
}
LANES_FN int32_t reduce_max(Ints a) {
  const __m128i q = _mm_max_epi32(_mm_max_epi32(a.q[0], a.q[2]), _mm_max_epi32(a.q[1], a.q[3]));
  const __m128i d = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(d, _mm_shuffle_epi32(d, 0xb1)));
}

LANES_FN float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
// Into the second-level cache: one slice of keys and values fills the first.
LANES_FN void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace headrace::kernels

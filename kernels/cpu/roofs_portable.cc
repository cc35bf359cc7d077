#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace headrace::kernels {
namespace {

using Bytes = __m128i;
using F32 = __m128;
constexpr int kWidth = 16;

inline Bytes zero_bytes() { return _mm_setzero_si128(); }
inline Bytes word(int v) { return _mm_set1_epi32(v); }
inline Bytes load_bytes(const std::byte* p) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(p));
}
inline Bytes mix(Bytes a, Bytes b) { return _mm_xor_si128(a, b); }
// Sums in 16 bits: the widening to 32 comes once in eight products.
inline Bytes product(Bytes sum, Bytes w, Bytes a) {
  return _mm_add_epi16(sum, _mm_maddubs_epi16(w, a));
}
inline uint64_t first_word(Bytes a) { return static_cast<uint64_t>(_mm_cvtsi128_si64(a)); }
inline F32 number(float v) { return _mm_set1_ps(v); }
inline F32 multiply_add(F32 a, F32 b, F32 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
inline double first_number(F32 a) { return static_cast<double>(_mm_cvtss_f32(a)); }

}  // namespace
}  // namespace headrace::kernels

// After the registers, which it is written over.
#include "kernels/cpu/roofs_body.h"

namespace headrace::kernels {

Roofs roofs_portable() { return roofs(); }

}  // namespace headrace::kernels

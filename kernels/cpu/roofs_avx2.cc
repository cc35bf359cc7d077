#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace headrace::kernels {
namespace {

using Bytes = __m256i;
using F32 = __m256;
constexpr int kWidth = 32;

inline Bytes zero_bytes() { return _mm256_setzero_si256(); }
inline Bytes word(int v) { return _mm256_set1_epi32(v); }
inline Bytes load_bytes(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline Bytes mix(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
// Sums in 16 bits: the widening to 32 comes once in eight products.
inline Bytes product(Bytes sum, Bytes w, Bytes a) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, a));
}
inline uint64_t first_word(Bytes a) {
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm256_castsi256_si128(a)));
}
inline F32 number(float v) { return _mm256_set1_ps(v); }
inline F32 multiply_add(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
inline double first_number(F32 a) { return static_cast<double>(_mm256_cvtss_f32(a)); }

}  // namespace
}  // namespace headrace::kernels

// After the registers, which it is written over.
#include "kernels/cpu/roofs_body.h"

namespace headrace::kernels {

Roofs roofs_avx2() { return roofs(); }

}  // namespace headrace::kernels

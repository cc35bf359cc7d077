#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace headrace::kernels {
namespace {

using Bytes = __m512i;
using F32 = __m512;
constexpr int kWidth = 64;

inline Bytes zero_bytes() { return _mm512_setzero_si512(); }
inline Bytes word(int v) { return _mm512_set1_epi32(v); }
inline Bytes load_bytes(const std::byte* p) { return _mm512_load_si512(p); }
inline Bytes mix(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
inline Bytes product(Bytes sum, Bytes w, Bytes a) { return _mm512_dpbusd_epi32(sum, w, a); }
inline uint64_t first_word(Bytes a) {
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(a)));
}
inline F32 number(float v) { return _mm512_set1_ps(v); }
inline F32 multiply_add(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline double first_number(F32 a) { return static_cast<double>(_mm512_cvtss_f32(a)); }

}  // namespace
}  // namespace headrace::kernels

// After the registers, which it is written over.
#include "kernels/cpu/roofs_body.h"

namespace headrace::kernels {

Roofs roofs_avx512() { return roofs(); }

}  // namespace headrace::kernels

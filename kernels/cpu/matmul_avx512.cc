#include <immintrin.h>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/matmul_unit512.h"

// AVX-512 with VNNI. Row = lane: one load of weights, one dpbusd against four activation bytes that
// are broadcast from memory, and no sum across lanes ever. A body holds T tokens times V vectors of
// 16 rows in registers.

namespace headrace::kernels {
namespace {

HEADRACE_INLINE __m512i four_bytes(const std::byte* p) {
  int v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
// sum[t] += integer products of 16 rows with token t, over the 32 k of a unit.
template <WeightType kType, int T>
HEADRACE_INLINE void dot(const std::byte* line, const std::byte* x, __m512i (&sum)[T]) {
  if constexpr (Unit<kType>::kBytes) {
    HEADRACE_UNROLL
    for (int j = 0; j < 8; j++) {
      const __m512i w = _mm512_load_si512(line + j * kLine);
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++)
        sum[t] = _mm512_dpbusd_epi32(sum[t], w, four_bytes(x + t * kGroup + 4 * j));
    }
  } else {
    const __m512i low_nibble = _mm512_set1_epi8(15);
    HEADRACE_UNROLL
    for (int j = 0; j < 4; j++) {
      const __m512i w = _mm512_load_si512(line + j * kLine);
      const __m512i low = _mm512_and_si512(w, low_nibble);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi32(w, 4), low_nibble);
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++)
        sum[t] = _mm512_dpbusd_epi32(sum[t], low, four_bytes(x + t * kGroup + 4 * j));
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++)
        sum[t] = _mm512_dpbusd_epi32(sum[t], high, four_bytes(x + t * kGroup + 16 + 4 * j));
    }
  }
}

// acc[t] += one unit of 16 rows (half 0 or 1) times token t.
template <WeightType kType, int T>
HEADRACE_INLINE void multiply(const std::byte* unit, int half, const std::byte* x,
                              __m512 (&acc)[T]) {
  using U = Unit<kType>;
  const std::byte* tail = x + T * kGroup;  // scale[T], start[T], low[T]
  __m512i sum[T];
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++)
    sum[t] = U::kMinimum ? _mm512_setzero_si512() : four_bytes(tail + 4 * (T + t));
  dot<kType, T>(unit + U::kFirst + half * U::kLines * kLine, x, sum);
  const __m512 scale = halves(unit + half * 32);
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) {
    const __m512 s = _mm512_mul_ps(scale, one_float(tail + 4 * t));
    acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), s, acc[t]);
  }
  if constexpr (U::kMinimum) {
    const __m512 minimum = halves(unit + kLine + half * 32);
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++)
      acc[t] = _mm512_fmadd_ps(minimum, one_float(tail + 4 * (2 * T + t)), acc[t]);
  }
}

template <WeightType kWeights>
struct Halves {
  using Sum = __m512;
  static constexpr WeightType kType = kWeights;
  static constexpr int kRows = kHalf;
  HEADRACE_INLINE static Sum zero() { return _mm512_setzero_ps(); }
  template <int T>
  HEADRACE_INLINE static void add(const std::byte* unit, int half, const std::byte* x,
                                  Sum (&sums)[T]) {
    multiply<kType, T>(unit, half, x, sums);
  }
  HEADRACE_INLINE static void store(const TileJob& job, int t, int row, Sum sum) {
    kernels::store(job, t, row, sum);
  }
};

template <WeightType kType, int T, int V>
void tiles(const TileJob& job) {
  // Two tokens compute faster than lines come: shorter turns keep their loads closer together.
  constexpr int kMost = T == 2 ? kTurn / 4 : kTurn;
  for (int tile = 0; tile < job.tiles; tile++)
    parts_in_turns<Halves<kType>, T, V>(job, tile, kMost);
}

template <WeightType kType>
void quant(const TileJob& job) {
  static_assert(kTokens512 == 12);
  // One token is left to vectors of half the width, which leave fetching the time that it takes.
  // Both halves while T * V results, T sums and the operands have room in 32 registers.
  switch (job.tokens) {
    case 1:
      return tiles_avx2(job);
    case 2:
      return tiles<kType, 2, 2>(job);
    case 3:
      return tiles<kType, 3, 2>(job);
    case 4:
      return tiles<kType, 4, 2>(job);
    case 5:
      return tiles<kType, 5, 2>(job);
    case 6:
      return tiles<kType, 6, 1>(job);
    case 7:
      return tiles<kType, 7, 1>(job);
    case 8:
      return tiles<kType, 8, 1>(job);
    case 9:
      return tiles<kType, 9, 1>(job);
    case 10:
      return tiles<kType, 10, 1>(job);
    case 11:
      return tiles<kType, 11, 1>(job);
    default:
      return tiles<kType, 12, 1>(job);
  }
}

// ---------------------------------------------------------------------------- float weights

template <WeightType kType>
HEADRACE_INLINE __m512 weights(const std::byte* p) {
  if constexpr (kType == WeightType::kF32) return _mm512_load_ps(p);
  const __m256i h = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  if constexpr (kType == WeightType::kF16) return _mm512_cvtph_ps(h);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// One tile: a chain of fused multiply-adds for each unit, the chains added up.
template <WeightType kType, int T>
void float_tile(const TileJob& job, int tile) {
  constexpr size_t kElement = kType == WeightType::kF32 ? 4 : 2;
  const std::byte* w = job.w + static_cast<size_t>(tile) * job.tile_bytes;
  const std::byte* x = job.x;
  __m512 acc[T][2];
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) acc[t][0] = acc[t][1] = _mm512_setzero_ps();
  for (int k = 0; k < job.cols; k += kGroup) {
    const int n = job.cols - k < kGroup ? job.cols - k : kGroup;
    __m512 chain[T][2];
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) chain[t][0] = chain[t][1] = _mm512_setzero_ps();
    for (int i = 0; i < n; i++) {
      const std::byte* row = w + static_cast<size_t>(i) * kTileRows * kElement;
      const __m512 w0 = weights<kType>(row);
      const __m512 w1 = weights<kType>(row + kHalf * kElement);
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) {
        const __m512 a = one_float(x + 4 * (i * T + t));
        chain[t][0] = _mm512_fmadd_ps(w0, a, chain[t][0]);
        chain[t][1] = _mm512_fmadd_ps(w1, a, chain[t][1]);
      }
    }
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) {
      acc[t][0] = _mm512_add_ps(acc[t][0], chain[t][0]);
      acc[t][1] = _mm512_add_ps(acc[t][1], chain[t][1]);
    }
    w += kElement * kGroup * kTileRows;
    x += T * kFloatTokenBytes;
  }
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) {
    store(job, t, tile * kTileRows, acc[t][0]);
    store(job, t, tile * kTileRows + kHalf, acc[t][1]);
  }
}

template <WeightType kType>
void floats(const TileJob& job) {
  for (int i = 0; i < job.tiles; i++) {
    switch (job.tokens) {
      case 1:
        float_tile<kType, 1>(job, i);
        break;
      case 2:
        float_tile<kType, 2>(job, i);
        break;
      case 3:
        float_tile<kType, 3>(job, i);
        break;
      case 4:
        float_tile<kType, 4>(job, i);
        break;
      case 5:
        float_tile<kType, 5>(job, i);
        break;
      default:
        float_tile<kType, 6>(job, i);
        break;
    }
  }
}

}  // namespace

void tiles_avx512(const TileJob& job) {
  switch (job.type) {
    case WeightType::kF32:
      return floats<WeightType::kF32>(job);
    case WeightType::kF16:
      return floats<WeightType::kF16>(job);
    case WeightType::kBf16:
      return floats<WeightType::kBf16>(job);
    case WeightType::kW8:
      return quant<WeightType::kW8>(job);
    case WeightType::kW4:
      return quant<WeightType::kW4>(job);
    case WeightType::kW4Min:
      return quant<WeightType::kW4Min>(job);
  }
}

void matmul_avx512(const MatMul& op, ThreadPool& pool, std::byte* scratch, const Epilogue& after) {
  run_tiles(op, pool, scratch,
            {.run = tiles_avx512, .quant_tokens = kTokens512, .float_tokens = kFloatTokens512},
            after);
}

}  // namespace headrace::kernels

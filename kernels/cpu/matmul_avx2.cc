#include <immintrin.h>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/matmul_unit.h"

// AVX2. Row = lane, eight rows a vector: the four quarters of a tile. Products of bytes meet in 16
// bits first, and never saturate there:
//   nibbles  15 * 127 * 2 a product of pairs, eight of them summed: 30,480 < 32,767
//   bytes    |w| times a with w's sign: 128 * 127 * 2 = 32,512, widened at once
// (|a| <= 127 by the definition of QuantBlock; w may be -128, whose absolute value reads as 128.)

namespace headrace::kernels {
namespace {

constexpr int kQuarter = 8;  // rows of a vector

HEADRACE_INLINE __m256i four_bytes(const std::byte* p) {
  int v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
HEADRACE_INLINE __m256 one_float(const std::byte* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_ps(v);
}
HEADRACE_INLINE __m256i load(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
HEADRACE_INLINE __m256 halves(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}

// sum[t] = integer products of 8 rows with token t, over the 32 k of a unit.
template <WeightType kType, int T>
HEADRACE_INLINE void dot(const std::byte* line, const std::byte* x, __m256i (&sum)[T]) {
  const __m256i ones = _mm256_set1_epi16(1);
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) sum[t] = _mm256_setzero_si256();
  if constexpr (Unit<kType>::kBytes) {
    HEADRACE_UNROLL
    for (int j = 0; j < 8; j++) {
      const __m256i w = _mm256_xor_si256(load(line + j * kLine), _mm256_set1_epi8(-128));
      const __m256i size = _mm256_abs_epi8(w);
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) {
        const __m256i a = _mm256_sign_epi8(four_bytes(x + t * kGroup + 4 * j), w);
        sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(_mm256_maddubs_epi16(size, a), ones));
      }
    }
  } else {
    const __m256i low_nibble = _mm256_set1_epi8(15);
    HEADRACE_UNROLL
    for (int j = 0; j < 4; j++) {
      const __m256i w = load(line + j * kLine);
      const __m256i low = _mm256_and_si256(w, low_nibble);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi32(w, 4), low_nibble);
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) {
        const std::byte* a = x + t * kGroup + 4 * j;
        sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(low, four_bytes(a)));
        sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(high, four_bytes(a + 16)));
      }
    }
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) sum[t] = _mm256_madd_epi16(sum[t], ones);
  }
}

// acc[t] += one unit of 8 rows (quarter 0..3) times token t.
template <WeightType kType, int T>
HEADRACE_INLINE void multiply(const std::byte* unit, int quarter, const std::byte* x,
                              __m256 (&acc)[T]) {
  using U = Unit<kType>;
  const std::byte* tail = x + T * kGroup;  // scale[T], start[T], low[T]
  __m256i sum[T];
  dot<kType, T>(unit + U::kFirst + quarter / 2 * U::kLines * kLine + quarter % 2 * 32, x, sum);
  const __m256 scale = halves(unit + quarter * 16);
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) {
    // Bytes were made signed above, so only W4's zero point is left.
    if constexpr (kType == WeightType::kW4)
      sum[t] = _mm256_add_epi32(sum[t], four_bytes(tail + 4 * (T + t)));
    const __m256 s = _mm256_mul_ps(scale, one_float(tail + 4 * t));
    acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t]), s, acc[t]);
  }
  if constexpr (U::kMinimum) {
    const __m256 minimum = halves(unit + kLine + quarter * 16);
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++)
      acc[t] = _mm256_fmadd_ps(minimum, one_float(tail + 4 * (2 * T + t)), acc[t]);
  }
}

// Rows [row, row + 8) of token t, as far as they exist.
HEADRACE_INLINE void store(const TileJob& job, int t, int row, __m256 v) {
  const int left = job.rows - row;
  if (left <= 0) return;
  float* y = job.y + t * job.stride + row;
  const __m256i mask =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  if (job.add) v = _mm256_add_ps(_mm256_maskload_ps(y, mask), v);
  _mm256_maskstore_ps(y, mask, v);
}

template <WeightType kWeights>
struct Quarters {
  using Sum = __m256;
  static constexpr WeightType kType = kWeights;
  static constexpr int kRows = kQuarter;
  HEADRACE_INLINE static Sum zero() { return _mm256_setzero_ps(); }
  template <int T>
  HEADRACE_INLINE static void add(const std::byte* unit, int quarter, const std::byte* x,
                                  Sum (&sums)[T]) {
    multiply<kType, T>(unit, quarter, x, sums);
  }
  HEADRACE_INLINE static void store(const TileJob& job, int t, int row, Sum sum) {
    kernels::store(job, t, row, sum);
  }
};

template <WeightType kType, int T, int V>
void tiles(const TileJob& job) {
  for (int tile = 0; tile < job.tiles; tile++)
    parts_in_turns<Quarters<kType>, T, V>(job, tile, kTurn);
}

template <WeightType kType>
void quant(const TileJob& job) {
  // As many vectors as leave room for T * V results, T sums and the operands in 16 registers.
  switch (job.tokens) {
    case 1:
      return tiles<kType, 1, 4>(job);
    case 2:
      return tiles<kType, 2, 4>(job);
    case 3:
      return tiles<kType, 3, 2>(job);
    default:
      return tiles<kType, 4, 1>(job);
  }
}

// ---------------------------------------------------------------------------- float weights

template <WeightType kType>
HEADRACE_INLINE __m256 weights(const std::byte* p) {
  if constexpr (kType == WeightType::kF32) {
    return _mm256_load_ps(reinterpret_cast<const float*>(p));
  } else if constexpr (kType == WeightType::kF16) {
    return halves(p);
  } else {
    const __m128i h = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
}

// Rows [row, row + 16) of a job: a chain of fused multiply-adds for each unit, the chains added up.
template <WeightType kType, int T>
void float_rows(const TileJob& job, int row) {
  constexpr size_t kElement = kType == WeightType::kF32 ? 4 : 2;
  const std::byte* w = job.w + static_cast<size_t>(row / kTileRows) * job.tile_bytes +
                       kElement * static_cast<size_t>(row % kTileRows);
  const std::byte* x = job.x;
  __m256 acc[T][2];
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
  for (int k = 0; k < job.cols; k += kGroup) {
    const int n = job.cols - k < kGroup ? job.cols - k : kGroup;
    __m256 chain[T][2];
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) chain[t][0] = chain[t][1] = _mm256_setzero_ps();
    for (int i = 0; i < n; i++) {
      const std::byte* line = w + kElement * static_cast<size_t>(i * kTileRows);
      const __m256 w0 = weights<kType>(line);
      const __m256 w1 = weights<kType>(line + kQuarter * kElement);
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) {
        const __m256 a = one_float(x + 4 * (i * T + t));
        chain[t][0] = _mm256_fmadd_ps(w0, a, chain[t][0]);
        chain[t][1] = _mm256_fmadd_ps(w1, a, chain[t][1]);
      }
    }
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) {
      acc[t][0] = _mm256_add_ps(acc[t][0], chain[t][0]);
      acc[t][1] = _mm256_add_ps(acc[t][1], chain[t][1]);
    }
    w += kElement * kGroup * kTileRows;
    x += T * kFloatTokenBytes;
  }
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) {
    store(job, t, row, acc[t][0]);
    store(job, t, row + kQuarter, acc[t][1]);
  }
}

template <WeightType kType>
void floats(const TileJob& job) {
  for (int row = 0; row < job.rows; row += 2 * kQuarter) {
    switch (job.tokens) {
      case 1:
        float_rows<kType, 1>(job, row);
        break;
      case 2:
        float_rows<kType, 2>(job, row);
        break;
      case 3:
        float_rows<kType, 3>(job, row);
        break;
      default:
        float_rows<kType, 4>(job, row);
        break;
    }
  }
}

}  // namespace

void tiles_avx2(const TileJob& job) {
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

void matmul_avx2(const MatMul& op, ThreadPool& pool, std::byte* scratch, const Epilogue& after) {
  run_tiles(op, pool, scratch,
            {.run = tiles_avx2, .quant_tokens = kTokens256, .float_tokens = kTokens256}, after);
}

}  // namespace headrace::kernels

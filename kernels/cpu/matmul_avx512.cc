#include <immintrin.h>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/matmul_unit512.h"

// AVX-512 with VNNI. Row = lane: one load of weights, one dpbusd against four activation bytes that
// are broadcast from memory, and no sum across lanes ever. A body holds T tokens times V vectors of
// 16 rows in registers; V > 2 reads several tiles, hence several streams of memory, side by side.

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

// V vectors of 16 rows from vector `first` of the job on.
template <WeightType kType, int T, int V>
void strip(const TileJob& job, int first) {
  using U = Unit<kType>;
  constexpr int kWide = V / 2;  // tiles side by side
  const std::byte* w = job.w + static_cast<size_t>(first / 2) * job.tile_bytes;
  const std::byte* x = job.x;
  __m512 acc[V][T];
  HEADRACE_UNROLL
  for (int v = 0; v < V; v++) {
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) acc[v][t] = _mm512_setzero_ps();
  }
  for (int u = 0; u < job.units; u++) {
    // A single stream is better fetched as several, a tile ahead.
    if (job.cold && V == 2) {
      fetch_next<kType>(w - static_cast<size_t>(u) * U::kSize, job.units, u);
    } else if (job.cold) {
      // Past the end of a tile lies the next one: the first of the next strip. Past the end of the
      // matrix a prefetch is without effect, so its address is not kept within bounds.
      const bool past = u + U::kAhead >= job.units;
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(w) + U::kAhead * U::kSize +
                              (past ? (kWide - 1) * job.tile_bytes : 0);
      HEADRACE_UNROLL
      for (int p = 0; p < kWide; p++) {
        HEADRACE_UNROLL
        for (int l = 0; l < U::kSize; l += kLine)
          _mm_prefetch(reinterpret_cast<const char*>(ahead + p * job.tile_bytes + l), _MM_HINT_T1);
      }
    }
    HEADRACE_UNROLL
    for (int v = 0; v < V; v++)
      multiply<kType, T>(w + static_cast<size_t>(v / 2) * job.tile_bytes, v % 2, x, acc[v]);
    w += U::kSize;
    x += T * kQuantTokenBytes;
  }
  HEADRACE_UNROLL
  for (int v = 0; v < V; v++) {
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) store(job, t, (first + v) * kHalf, acc[v][t]);
  }
}

// One tile, its halves of 16 rows in turns.
template <WeightType kType, int T>
void halves_in_turns(const TileJob& job, int tile) {
  using U = Unit<kType>;
  const std::byte* w = job.w + static_cast<size_t>(tile) * job.tile_bytes;
  __m512 sums[2][T];
  for (auto& half : sums) {
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) half[t] = _mm512_setzero_ps();
  }
  for (int i = 0; i < turns(job.units); i++) {
    const Turn part = turn(job.units, i);
    const std::byte* begin = w + static_cast<size_t>(part.begin) * U::kSize;
    each_pass<2>([&](auto half) __attribute__((always_inline)) {
      __m512 acc[T];
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) acc[t] = sums[half][t];
      const std::byte* unit = begin;
      const std::byte* x = job.x + static_cast<size_t>(part.begin) * T * kQuantTokenBytes;
      for (int u = 0; u < part.units; u++) {
        if (job.cold) fetch_next<kType, half, 2>(begin, part.units, u);
        multiply<kType, T>(unit, half, x, acc);
        unit += U::kSize;
        x += T * kQuantTokenBytes;
      }
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) sums[half][t] = acc[t];
    });
  }
  HEADRACE_UNROLL
  for (int half = 0; half < 2; half++) {
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) store(job, t, tile * kTileRows + half * kHalf, sums[half][t]);
  }
}

// All vectors of a job, at most `V` at a time and as evenly as tiles allow.
template <WeightType kType, int T, int V>
void strips(const TileJob& job) {
  if constexpr (V == 1) {
    for (int tile = 0; tile < job.tiles; tile++) halves_in_turns<kType, T>(job, tile);
  } else {
    constexpr int kWide = V / 2;
    const int count = (job.tiles + kWide - 1) / kWide;
    for (int i = 0; i < count; i++) {
      const int first = job.tiles * i / count;
      const int wide = job.tiles * (i + 1) / count - first;
      if (wide == kWide) strip<kType, T, V>(job, 2 * first);
      if constexpr (V == 8) {
        if (wide == 3) strip<kType, T, 6>(job, 2 * first);
        if (wide == 2) strip<kType, T, 4>(job, 2 * first);
      }
      if constexpr (V > 2) {
        if (wide == 1) strip<kType, T, 2>(job, 2 * first);
      }
    }
  }
}

template <WeightType kType>
void quant(const TileJob& job) {
  static_assert(kTokens512 == 12);
  // As many vectors as leave room for T * V results, T sums and the operands in 32 registers.
  switch (job.tokens) {
    case 1:
      return strips<kType, 1, 8>(job);
    case 2:
      return strips<kType, 2, 8>(job);
    case 3:
      return strips<kType, 3, 4>(job);
    case 4:
      return strips<kType, 4, 4>(job);
    case 5:
      return strips<kType, 5, 4>(job);
    case 6:
      return strips<kType, 6, 1>(job);
    case 7:
      return strips<kType, 7, 1>(job);
    case 8:
      return strips<kType, 8, 1>(job);
    case 9:
      return strips<kType, 9, 1>(job);
    case 10:
      return strips<kType, 10, 1>(job);
    case 11:
      return strips<kType, 11, 1>(job);
    default:
      return strips<kType, 12, 1>(job);
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

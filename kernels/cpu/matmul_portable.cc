#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_portable.h"
#include "kernels/cpu/matmul_tiles.h"

// x86-64-v2: row = lane, four rows a register, sixteen rows at a time. Products of bytes meet in 16
// bits as in the AVX2 body, which says why they never saturate there.

namespace headrace::kernels {
namespace {

constexpr int kLine = 64;
constexpr int kHalf = 16;  // rows of a line
constexpr int kTokens = 4;

template <WeightType kType>
struct Unit {
  static constexpr bool kBytes = kType == WeightType::kW8;
  static constexpr bool kMinimum = kType == WeightType::kW4Min;
  static constexpr int kFirst = kMinimum ? 2 * kLine : kLine;
  static constexpr int kLines = kBytes ? 8 : 4;
  static constexpr int kSize = kFirst + 2 * kLines * kLine;
};

template <class T>
LANES_FN T get(const std::byte* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
LANES_FN __m128i four_bytes(const std::byte* p) { return _mm_set1_epi32(get<int>(p)); }
LANES_FN __m128i load_bytes(const std::byte* p) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(p));
}
LANES_FN Lanes halves(const std::byte* p) {
  return load_half(reinterpret_cast<const uint16_t*>(p));
}

// Integer products of 4 rows of each line with one token, over the 32 k of a unit.
template <WeightType kType>
LANES_FN __m128i dot(const std::byte* line, const std::byte* x) {
  const __m128i ones = _mm_set1_epi16(1);
  __m128i sum = _mm_setzero_si128();
  if constexpr (Unit<kType>::kBytes) {
    for (int j = 0; j < 8; j++) {
      const __m128i w = _mm_xor_si128(load_bytes(line + j * kLine), _mm_set1_epi8(-128));
      const __m128i a = _mm_sign_epi8(four_bytes(x + 4 * j), w);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_maddubs_epi16(_mm_abs_epi8(w), a), ones));
    }
    return sum;
  } else {
    const __m128i low_nibble = _mm_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
      const __m128i w = load_bytes(line + j * kLine);
      const __m128i low = _mm_and_si128(w, low_nibble);
      const __m128i high = _mm_and_si128(_mm_srli_epi32(w, 4), low_nibble);
      sum = _mm_add_epi16(sum, _mm_maddubs_epi16(low, four_bytes(x + 4 * j)));
      sum = _mm_add_epi16(sum, _mm_maddubs_epi16(high, four_bytes(x + 16 + 4 * j)));
    }
    return _mm_madd_epi16(sum, ones);
  }
}

// Rows [row, row + 16) of token t, as far as they exist.
LANES_FN void store_rows(const TileJob& job, int t, int row, Lanes v) {
  const int left = job.rows - row;
  if (left <= 0) return;
  float* y = job.y + t * job.stride + row;
  const int n = left < kHalf ? left : kHalf;
  store(y, job.add ? add(load(y, n), v) : v, n);
}

// Rows [row, row + 16) of the job; row is a multiple of 16.
template <WeightType kType>
void quant_rows(const TileJob& job, int row) {
  using U = Unit<kType>;
  const int half = row % kTileRows / kHalf;
  const std::byte* unit = job.w + static_cast<size_t>(row / kTileRows) * job.tile_bytes;
  const std::byte* x = job.x;
  const int tokens = job.tokens;
  Lanes acc[kTokens] = {splat(0), splat(0), splat(0), splat(0)};
  for (int u = 0; u < job.units; u++) {
    const std::byte* tail = x + tokens * kGroup;  // scale[T], start[T], low[T]
    const std::byte* lines = unit + U::kFirst + half * U::kLines * kLine;
    const Lanes scale = halves(unit + half * 32);
    for (int t = 0; t < tokens; t++) {
      Ints sum;
      for (int i = 0; i < 4; i++) sum.q[i] = dot<kType>(lines + 16 * i, x + t * kGroup);
      if constexpr (kType == WeightType::kW4)
        sum = add(sum, splat_int(get<int32_t>(tail + 4 * (tokens + t))));
      acc[t] = fma(to_float(sum), mul(scale, splat(get<float>(tail + 4 * t))), acc[t]);
      if constexpr (U::kMinimum)
        acc[t] = fma(halves(unit + kLine + half * 32),
                     splat(get<float>(tail + 4 * (2 * tokens + t))), acc[t]);
    }
    unit += U::kSize;
    x += tokens * kQuantTokenBytes;
  }
  for (int t = 0; t < tokens; t++) store_rows(job, t, row, acc[t]);
}

template <WeightType kType>
LANES_FN Lanes weights(const std::byte* p) {
  if constexpr (kType == WeightType::kF32) {
    return load(reinterpret_cast<const float*>(p));
  } else if constexpr (kType == WeightType::kF16) {
    return halves(p);
  } else {
    Lanes out;
    for (int i = 0; i < 4; i++)
      out.q[i] = _mm_castsi128_ps(_mm_slli_epi32(
          _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i))), 16));
    return out;
  }
}

// Rows [row, row + 16) of a job: a chain of fused multiply-adds for each unit, the chains added up.
template <WeightType kType>
void float_rows(const TileJob& job, int row) {
  constexpr size_t kElement = kType == WeightType::kF32 ? 4 : 2;
  const std::byte* w = job.w + static_cast<size_t>(row / kTileRows) * job.tile_bytes +
                       kElement * static_cast<size_t>(row % kTileRows);
  const std::byte* x = job.x;
  Lanes acc[kTokens] = {splat(0), splat(0), splat(0), splat(0)};
  for (int k = 0; k < job.cols; k += kGroup) {
    const int n = job.cols - k < kGroup ? job.cols - k : kGroup;
    Lanes chain[kTokens] = {splat(0), splat(0), splat(0), splat(0)};
    for (int i = 0; i < n; i++) {
      const Lanes line = weights<kType>(w + kElement * static_cast<size_t>(i * kTileRows));
      for (int t = 0; t < job.tokens; t++)
        chain[t] = fma(line, splat(get<float>(x + 4 * (i * job.tokens + t))), chain[t]);
    }
    for (int t = 0; t < job.tokens; t++) acc[t] = add(acc[t], chain[t]);
    w += kElement * kGroup * kTileRows;
    x += job.tokens * kFloatTokenBytes;
  }
  for (int t = 0; t < job.tokens; t++) store_rows(job, t, row, acc[t]);
}

void run(const TileJob& job) {
  for (int row = 0; row < job.rows; row += kHalf) {
    switch (job.type) {
      case WeightType::kF32:
        float_rows<WeightType::kF32>(job, row);
        break;
      case WeightType::kF16:
        float_rows<WeightType::kF16>(job, row);
        break;
      case WeightType::kBf16:
        float_rows<WeightType::kBf16>(job, row);
        break;
      case WeightType::kW8:
        quant_rows<WeightType::kW8>(job, row);
        break;
      case WeightType::kW4:
        quant_rows<WeightType::kW4>(job, row);
        break;
      case WeightType::kW4Min:
        quant_rows<WeightType::kW4Min>(job, row);
        break;
    }
  }
}

}  // namespace

void matmul_portable(const MatMul& op, ThreadPool& pool, std::byte* scratch,
                     const Epilogue& after) {
  run_tiles(op, pool, scratch, {.run = run, .quant_tokens = kTokens, .float_tokens = kTokens},
            after);
}

}  // namespace headrace::kernels

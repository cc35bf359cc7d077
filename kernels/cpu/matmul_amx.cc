#include <immintrin.h>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/matmul_unit512.h"

// AMX: one instruction multiplies up to 16 tokens with 16 rows over the 32 k of a unit. The tile of
// results goes by way of memory to vectors, one a token, which are scaled and added as everywhere
// else; the integers are the same, hence the bits.
//
// A unit passes three stages: nibbles become bytes, tiles are multiplied and stored, results are
// scaled and added. Units are some way apart in them, so that no stage waits for another one's
// stores. When several groups of tokens pass over the same tiles, the bytes are kept in the panel
// and the first stage is left out from the second group on.
//
//   A [T tokens][32 int8]   the packed group, as it is
//   B [8][16 rows][4 int8]  weights, zero point taken off; line j holds k = 4j..4j+3
//   C [T tokens][16 rows]   int32

namespace headrace::kernels {
namespace {

constexpr int kTokensMost = kPanelTokens;
// With fewer tokens the vectors of tiles_avx512 are as fast: memory is what they wait for.
constexpr int kTokensLeast = 6;
constexpr int kLines = 8;  // of B

// Tile 0: A, 1: B, 2 and 3: C of each vector.
void configure(int tokens) {
  TileConfig config;
  config.set(0, tokens, kGroup);
  config.set(1, kLines, kLine);
  config.set(2, tokens, kLine);
  config.set(3, tokens, kLine);
  _tile_loadconfig(&config);
}

// The signed bytes of 16 rows of a unit.
template <WeightType kType>
HEADRACE_INLINE void expand(const std::byte* line, std::byte* to) {
  if constexpr (Unit<kType>::kBytes) {
    HEADRACE_UNROLL
    for (int j = 0; j < kLines; j++) {
      const __m512i w = _mm512_load_si512(line + j * kLine);
      _mm512_store_si512(to + j * kLine,
                         _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80))));
    }
  } else {
    const __m512i low_nibble = _mm512_set1_epi8(15);
    HEADRACE_UNROLL
    for (int j = 0; j < kLines / 2; j++) {
      const __m512i w = _mm512_load_si512(line + j * kLine);
      __m512i low = _mm512_and_si512(w, low_nibble);
      __m512i high = _mm512_and_si512(_mm512_srli_epi32(w, 4), low_nibble);
      if constexpr (!Unit<kType>::kMinimum) {
        low = _mm512_sub_epi8(low, _mm512_set1_epi8(8));
        high = _mm512_sub_epi8(high, _mm512_set1_epi8(8));
      }
      _mm512_store_si512(to + j * kLine, low);
      _mm512_store_si512(to + (j + kLines / 2) * kLine, high);
    }
  }
}

// acc[t] += one unit of 16 rows times token t, from the integers.
template <WeightType kType, int T>
HEADRACE_INLINE void scale_and_add(const std::byte* unit, int half, const std::byte* x,
                                   const std::byte* sums, __m512 (&acc)[T]) {
  const std::byte* tail = x + T * kGroup;  // scale[T], start[T], low[T]
  const __m512 scale = halves(unit + half * 32);
  HEADRACE_UNROLL
  for (int t = 0; t < T; t++) {
    const __m512 s = _mm512_mul_ps(scale, one_float(tail + 4 * t));
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + t * kLine));
    acc[t] = _mm512_fmadd_ps(sum, s, acc[t]);
  }
  if constexpr (Unit<kType>::kMinimum) {
    const __m512 minimum = halves(unit + kLine + half * 32);
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++)
      acc[t] = _mm512_fmadd_ps(minimum, one_float(tail + 4 * (2 * T + t)), acc[t]);
  }
}

// Units in the stages at once: the first works kApart ahead of the second, the third behind it.
constexpr int kApart = 2;
constexpr int kRing = 4;
static_assert(kRing > kApart);

struct alignas(64) Stages {
  std::byte weights[kRing][2][kLines * kLine];    // B of [unit % kRing][vector]
  std::byte sums[kRing][2][kTokensMost * kLine];  // C alike
};

// One tile: both halves of its rows beside each other.
template <WeightType kType, int T>
class Strip {
  using U = Unit<kType>;
  static constexpr size_t kTokenBytes = static_cast<size_t>(T) * kQuantTokenBytes;

 public:
  Strip(const TileJob& job, int tile, Stages& stages)
      : job_(job),
        w_(job.w + static_cast<size_t>(tile) * job.tile_bytes),
        panel_(job.panel == nullptr ? nullptr
                                    : job.panel + static_cast<size_t>(tile) *
                                                      static_cast<size_t>(job.units) * kPanelUnit),
        stages_(stages) {}

  void run(int tile) {
    const int units = job_.units;
    const bool expands = panel_ == nullptr || job_.cold;
    __m512 acc[2][T];
    HEADRACE_UNROLL
    for (int v = 0; v < 2; v++) {
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) acc[v][t] = _mm512_setzero_ps();
    }
    if (expands)
      for (int u = 0; u < kApart && u < units; u++) fill(u);
    for (int u = 0; u < units + kApart; u++) {
      if (expands && u + kApart < units) fill(u + kApart);
      if (u < units) multiply(u);
      if (u >= kApart) add(u - kApart, acc);
    }
    HEADRACE_UNROLL
    for (int v = 0; v < 2; v++) {
      HEADRACE_UNROLL
      for (int t = 0; t < T; t++) store(job_, t, tile * kTileRows + v * kHalf, acc[v][t]);
    }
  }

 private:
  HEADRACE_INLINE const std::byte* unit(int u) const {
    return w_ + static_cast<size_t>(u) * U::kSize;
  }
  HEADRACE_INLINE const std::byte* tokens(int u) const {
    return job_.x + static_cast<size_t>(u) * kTokenBytes;
  }
  HEADRACE_INLINE std::byte* weights(int u, int v) const {
    if (panel_ == nullptr) return stages_.weights[u % kRing][v];
    return panel_ + static_cast<size_t>(u) * kPanelUnit + v * kLines * kLine;
  }
  HEADRACE_INLINE void fill(int u) const {
    const std::byte* from = unit(u);
    if (job_.cold) fetch_next<kType>(w_, job_.units, u);
    HEADRACE_UNROLL
    for (int v = 0; v < 2; v++)
      expand<kType>(from + U::kFirst + v * U::kLines * kLine, weights(u, v));
  }
  HEADRACE_INLINE void multiply(int u) const {
    auto& sums = stages_.sums[u % kRing];
    _tile_loadd(0, tokens(u), kGroup);
    _tile_zero(2);
    _tile_loadd(1, weights(u, 0), kLine);
    _tile_dpbssd(2, 0, 1);
    _tile_stored(2, sums[0], kLine);
    _tile_zero(3);
    _tile_loadd(1, weights(u, 1), kLine);
    _tile_dpbssd(3, 0, 1);
    _tile_stored(3, sums[1], kLine);
  }
  HEADRACE_INLINE void add(int u, __m512 (&acc)[2][T]) const {
    HEADRACE_UNROLL
    for (int v = 0; v < 2; v++)
      scale_and_add<kType, T>(unit(u), v, tokens(u), stages_.sums[u % kRing][v], acc[v]);
  }

  const TileJob& job_;
  const std::byte* const w_;
  std::byte* const panel_;
  Stages& stages_;
};

template <WeightType kType, int T>
void strips(const TileJob& job) {
  Stages stages;
  configure(T);
  for (int tile = 0; tile < job.tiles; tile++) Strip<kType, T>(job, tile, stages).run(tile);
  _tile_release();
}

template <WeightType kType>
void quant(const TileJob& job) {
  switch (job.tokens) {
    case 6:
      return strips<kType, 6>(job);
    case 7:
      return strips<kType, 7>(job);
    case 8:
      return strips<kType, 8>(job);
    case 9:
      return strips<kType, 9>(job);
    case 10:
      return strips<kType, 10>(job);
    case 11:
      return strips<kType, 11>(job);
    case 12:
      return strips<kType, 12>(job);
    case 13:
      return strips<kType, 13>(job);
    case 14:
      return strips<kType, 14>(job);
    case 15:
      return strips<kType, 15>(job);
    default:
      return strips<kType, 16>(job);
  }
}

void run(const TileJob& job) {
  if (!quantized(job.type) || job.tokens < kTokensLeast) return tiles_avx512(job);
  switch (job.type) {
    case WeightType::kW4:
      return quant<WeightType::kW4>(job);
    case WeightType::kW4Min:
      return quant<WeightType::kW4Min>(job);
    default:
      return quant<WeightType::kW8>(job);
  }
}

}  // namespace

void matmul_amx(const MatMul& op, ThreadPool& pool, std::byte* scratch, const Epilogue& after) {
  run_tiles(
      op, pool, scratch,
      {.run = run, .quant_tokens = kTokensMost, .float_tokens = kFloatTokens512, .panels = true},
      after);
}

}  // namespace headrace::kernels

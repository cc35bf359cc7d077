#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/matmul_tiles.h"

// What the bodies of wide vectors share: how a unit of quantized weights lies in lines, and how
// lines are fetched ahead. Compiled with the flags of whoever includes it.

#if !defined(__clang__)
#define HEADRACE_UNROLL _Pragma("GCC unroll 16")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
// Every access checked and every loop unrolled would take minutes to compile.
#define HEADRACE_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define HEADRACE_UNROLL _Pragma("unroll")
#endif
#define HEADRACE_INLINE inline __attribute__((always_inline))

namespace headrace::kernels {
namespace {

constexpr int kLine = 64;
// Units that one part of a tile's rows goes over before the next part does, fetching as many. More
// would be used too late: with the whole of K = 8192 in turn 8 rows of 2048 took 640 us, not 430.
constexpr int kTurn = 64;

template <WeightType kType>
struct Unit {
  static constexpr bool kBytes = kType == WeightType::kW8;
  static constexpr bool kMinimum = kType == WeightType::kW4Min;
  static constexpr int kFirst = kMinimum ? 2 * kLine : kLine;  // of the lines
  static constexpr int kLines = kBytes ? 8 : 4;                // for 16 rows
  static constexpr int kSize = kFirst + 2 * kLines * kLine;
};

// Fetches as much as one of `units` units at `w`, the one with number u, of what lies behind them
// into the second-level cache, from four places at once: as four streams it comes faster than as
// one. Of each unit it takes the share of pass kPass of kPasses: one pass that calls it with each
// of its units has fetched that share of as many as these, and all passes together fetch at an even
// rate. Past the end of the matrix it is without effect, so its addresses are not kept within
// bounds.
template <WeightType kType, int kPass = 0, int kPasses = 1>
HEADRACE_INLINE void fetch_next(const std::byte* w, int units, int u) {
  constexpr size_t kPlaces = 4;
  constexpr int kLines = Unit<kType>::kSize / kLine;
  constexpr int kFrom = kLines * kPass / kPasses;
  constexpr int kShare = kLines * (kPass + 1) / kPasses - kFrom;
  const size_t bytes = static_cast<size_t>(units) * Unit<kType>::kSize;
  const uintptr_t next = reinterpret_cast<uintptr_t>(w) + bytes;
  const size_t each = bytes / kPlaces / kLine * kLine;
  HEADRACE_UNROLL
  for (int l = 0; l < kShare; l++) {
    const auto i = static_cast<size_t>(kFrom * units + u * kShare + l);
    const uintptr_t at = next + i % kPlaces * each + i / kPlaces * kLine;
    _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
  }
}

// A tile's units in turns of nearly the same length, `most` at most.
struct Turn {
  int begin, units;
};
struct Turns {
  int units, count;
  Turns(int all, int most) : units(all), count((all + most - 1) / most) {}
  Turn operator[](int i) const {
    const int begin = units * i / count;
    return {begin, units * (i + 1) / count - begin};
  }
};

// f(0), ... f(kPasses - 1), each with its number as a constant.
template <int kPasses, int kPass = 0, class F>
HEADRACE_INLINE void each_pass(F&& f) {
  f(std::integral_constant<int, kPass>());
  if constexpr (kPass + 1 < kPasses) each_pass<kPasses, kPass + 1>(f);
}

// One tile times T tokens: V of its parts at a time, in turns of at most `most` units. Body is of
// one instruction set and type of weights: a Sum is a vector of a part's rows, kRows of them;
//   zero()                          such a vector
//   add<T>(unit, part, x, sums)     sums[t] += one unit of the part times token t
//   store(job, t, row, sum)         rows [row, row + kRows) of token t, as far as they exist
template <class Body, int T, int V>
HEADRACE_INLINE void parts_in_turns(const TileJob& job, int tile, int most) {
  constexpr int kParts = kTileRows / Body::kRows;
  constexpr size_t kSize = Unit<Body::kType>::kSize;
  const std::byte* w = job.w + static_cast<size_t>(tile) * job.tile_bytes;
  typename Body::Sum sums[kParts][T];
  for (auto& part : sums) {
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++) part[t] = Body::zero();
  }
  const Turns turns(job.units, most);
  for (int i = 0; i < turns.count; i++) {
    const Turn turn = turns[i];
    const std::byte* begin = w + static_cast<size_t>(turn.begin) * kSize;
    each_pass<kParts / V>([&](auto pass) __attribute__((always_inline)) {
      typename Body::Sum acc[V][T];
      HEADRACE_UNROLL
      for (int v = 0; v < V; v++) {
        HEADRACE_UNROLL
        for (int t = 0; t < T; t++) acc[v][t] = sums[pass * V + v][t];
      }
      const std::byte* unit = begin;
      const std::byte* x = job.x + static_cast<size_t>(turn.begin) * T * kQuantTokenBytes;
      for (int u = 0; u < turn.units; u++) {
        if (job.cold) fetch_next<Body::kType, pass, kParts / V>(begin, turn.units, u);
        HEADRACE_UNROLL
        for (int v = 0; v < V; v++) Body::template add<T>(unit, pass * V + v, x, acc[v]);
        unit += kSize;
        x += T * kQuantTokenBytes;
      }
      HEADRACE_UNROLL
      for (int v = 0; v < V; v++) {
        HEADRACE_UNROLL
        for (int t = 0; t < T; t++) sums[pass * V + v][t] = acc[v][t];
      }
    });
  }
  HEADRACE_UNROLL
  for (int part = 0; part < kParts; part++) {
    HEADRACE_UNROLL
    for (int t = 0; t < T; t++)
      Body::store(job, t, tile * kTileRows + part * Body::kRows, sums[part][t]);
  }
}

}  // namespace
}  // namespace headrace::kernels

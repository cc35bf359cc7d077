#pragma once

#include <cstdint>

// How K of a product is cut into pieces, and how the pieces are spread over thread blocks where one
// block for each part of the result would leave much of a GPU idle. The cut is a function of K and
// gives a result its bits; the spread changes none, since sums of pieces are added one after
// another whoever adds them.

namespace headrace::cuda {

constexpr uint32_t kPiecesMax = 8;  // of K
constexpr uint32_t kUnitColumns = 64;
constexpr uint32_t kTileRows = 8;     // of x, of a tile of sums
constexpr uint32_t kBlockStrips = 8;  // of weights, of a block of matmul_tile
constexpr uint32_t kBlockRows = 64;   // of x
constexpr uint32_t kTileBytes = 512;  // a strip's sums for eight rows of x

// What spreading costs, in the time of a block's unit (0.36 us of an H100): to fill a block's ring
// and to end it; and how many sums of 32 KB the L2 takes and gives meanwhile.
constexpr uint32_t kSpreadStart = 4;
constexpr uint32_t kSpreadSums = 30;
// Most sums that wait at once, and their bytes; a counter for each part of the result.
constexpr uint32_t kSpreadSumsMax = 768;
constexpr uint64_t kSpreadBytes =
    uint64_t{kSpreadSumsMax} * kBlockStrips * (kBlockRows / kTileRows) * kTileBytes;
constexpr uint32_t kSpreadCounters = kSpreadSumsMax;

constexpr uint32_t shares_of(uint32_t all, uint32_t each) { return (all + each - 1) / each; }

// Of K in units of 64.
constexpr uint32_t piece_units(uint32_t units) { return shares_of(units, kPiecesMax); }

struct Spread {
  uint64_t blocks = 0;    // each a part of the result
  uint32_t pieces = 1;    // of K
  uint32_t of_share = 1;  // pieces that a block takes
  uint32_t shares = 1;    // blocks for each part of the result

  // Sums that wait in the workspace: the first block's are added up already.
  constexpr uint32_t sums() const { return shares == 1 ? 0 : 1 + pieces - of_share; }
};

// Of the ways to halve the pieces of a block, the one that ends first on so many processors, each
// with one block at a time; a tenth less is worth it.
constexpr Spread spread_of(uint32_t strips, uint32_t units, uint32_t rows, uint32_t processors) {
  const uint32_t length = piece_units(units);
  const uint32_t pieces = shares_of(units, length);
  const uint64_t blocks = uint64_t{shares_of(strips, kBlockStrips)} * shares_of(rows, kBlockRows);
  Spread best{blocks, pieces, pieces, 1};
  uint64_t best_time = UINT64_MAX / 16;
  for (uint32_t each = pieces;; each = shares_of(each, 2)) {
    const Spread s{blocks, pieces, each, shares_of(pieces, each)};
    const uint64_t waves = (blocks * s.shares + processors - 1) / processors;
    const uint64_t time = waves * (each * length + kSpreadStart) + blocks * s.sums() / kSpreadSums;
    if (blocks * s.sums() > kSpreadSumsMax) break;
    if (10 * time < 9 * best_time) {
      best = s;
      best_time = time;
    }
    if (each == 1) break;
  }
  return best;
}

}  // namespace headrace::cuda

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace headrace::kernels {

// What the three bodies of matmul share: the cut into pieces, and the form in which a piece gets
// its activations. Nothing here is inline code, since files of every instruction set include it.

// A group of T tokens, ordered so that every operand of a unit stands at a constant distance:
//   quantized  per unit: int8 q[T][32], f32 scale[T], i32 start[T], f32 low[T]
//              start = what the integer sum begins with, for the zero point: -8 (W4) or -128 (W8)
//              times sum(q); low = f32(scale * sum(q)), what the minimum is multiplied by
//   floats     per unit: f32 x[32][T]
constexpr int kQuantTokenBytes = kGroup + 4 + 4 + 4;  // of one token in one unit
constexpr int kFloatTokenBytes = 4 * kGroup;

// One group of tokens against tiles that lie side by side.
struct TileJob {
  WeightType type;
  const std::byte* w;  // the first tile
  size_t tile_bytes;   // from tile to tile
  int tiles;           // >= 1
  int cols;            // K
  int units;           // ceil(K / 32)
  const std::byte* x;  // the packed group
  int tokens;          // T
  float* y;            // of the first token and the first row of the first tile
  int64_t stride;      // floats from token to token
  int rows;            // that exist, of the tiles' 32 * tiles: the others are not stored
  bool add;            // y += instead of y =
  bool cold;           // these weights come from memory: fetch ahead
  std::byte* panel;    // [tiles][units][kPanelUnit]: filled by the cold job of these tiles, read by
                       // those of further tokens; null: there are none
};

// A unit of quantized weights, each as a byte of its own; tokens of a group where panels are used.
constexpr size_t kPanelUnit = kTileRows * kGroup;
constexpr int kPanelTokens = 16;

// What a piece has computed: y[t * stride + n] for tokens [token, token + tokens) and rows
// [row, row + rows) of the matrix as it is packed.
struct TileResults {
  const float* y;
  int64_t stride;
  int token, tokens;
  int row, rows;
};

// What the thread that computed a piece does with it at once, while it is in its cache.
struct Epilogue {
  void (*run)(const void* op, const TileResults& results) = nullptr;  // null: nothing
  const void* op = nullptr;
  // The matrix is paired: pieces are whole pairs of tiles, and their results are dropped when the
  // epilogue has seen them.
  bool pairs = false;
};

struct TilePath {
  void (*run)(const TileJob& job);
  int quant_tokens;  // most tokens of a group
  int float_tokens;
  bool panels = false;  // it can use TileJob::panel
};

// One job by the 512-bit bodies: up to kTokens512 tokens of quantized weights, kFloatTokens512 of
// floats.
constexpr int kTokens512 = 12, kFloatTokens512 = 6;
void tiles_avx512(const TileJob& job);
// Alike of 256-bit vectors: up to kTokens256 of either.
constexpr int kTokens256 = 4;
void tiles_avx2(const TileJob& job);

// Packs the activations into `scratch` (matmul_scratch_bytes), then shares the tiles out. A result
// depends on its row and its token alone, so no cut can change a bit. op.y is not used where
// `after.pairs`.
void run_tiles(const MatMul& op, ThreadPool& pool, std::byte* scratch, const TilePath& path,
               const Epilogue& after);

}  // namespace headrace::kernels

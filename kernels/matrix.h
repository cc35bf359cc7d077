#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::kernels {

// How a weight matrix is stored once packed. Quantized types have groups of 32 along K.
enum class WeightType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kW8,     // w = scale * q, q in [-128, 127], f16 scale
  kW4,     // w = scale * (q - 8), q in [0, 15], f16 scale
  kW4Min,  // w = scale * q + minimum, q in [0, 15], f16 scale and minimum
};
const char* name(WeightType type);
constexpr bool quantized(WeightType t) { return t >= WeightType::kW8; }

// GGUF block formats that pack() reads, one row after the other.
enum class SourceType : uint8_t { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1 };
// Bytes of one source row of `cols` values; cols is a multiple of 32 for the quantized ones.
size_t source_row_bytes(SourceType type, int64_t cols);
WeightType packed_type(SourceType type);

constexpr int kTileRows = 32;  // rows side by side: row = vector lane
constexpr int kGroup = 32;     // k per unit

// kLanes: for the CPU's vectors. kFragments: for the GPU's tensor cores (matrix_fragments.h).
enum class Tiling : uint8_t { kLanes, kFragments };

// A packed matrix: a view, 64-byte aligned. What follows is kLanes. Rows are padded with zeros to a
// multiple of kTileRows and K to a multiple of kGroup (only float types may have other K). Tile t
// holds rows [32t, 32t+32); a tile is ceil(K/32) units in K order; a unit is whole cache lines:
//   kW4     [32 f16 scales][8 lines of nibbles]            576 B
//   kW4Min  [32 f16 scales][32 f16 minima][8 lines]        640 B
//   kW8     [32 f16 scales][16 lines of bytes, q ^ 0x80]  1088 B
//   floats  [32 k][32 rows]
// Nibble line j (of 4 per 16 rows): lane r, its 4 bytes hold k = 4j..4j+3 in the low nibbles and
// k = 16+4j.. in the high ones. Byte line j (of 8 per 16 rows): lane r, k = 4j..4j+3.
struct Matrix {
  WeightType type = WeightType::kF32;
  int32_t rows = 0;  // N
  int32_t cols = 0;  // K
  const std::byte* data = nullptr;
  Tiling tiling = Tiling::kLanes;
  // Rows of the upper half alternate with those of the lower one: tile by tile (kLanes, where rows
  // are a multiple of 64), row r beside row r + rows/2 (kFragments).
  bool paired = false;

  int32_t tiles() const;  // of kFragments: strips
  int32_t units() const;  // of a tile
  size_t tile_bytes() const;
  size_t bytes() const { return tile_bytes() * static_cast<size_t>(tiles()); }
};

size_t unit_bytes(WeightType type);
// Bytes that a packed matrix takes, a multiple of 64.
size_t packed_bytes(WeightType type, int64_t rows, int64_t cols);
// Packs tile `tile` from `source` (all `rows` rows, row_bytes apart) into `to` (the whole matrix).
// Tiles are independent, so callers may share them out.
void pack_tile(SourceType from, const std::byte* source, int32_t rows, int32_t cols, bool paired,
               int32_t tile, std::byte* to);
// Row `row` as `cols` floats, each what weight_at gives.
void unpack_row(const Matrix& m, int32_t row, float* out);
// One weight as a float; slow, for references and checks.
float weight_at(const Matrix& m, int32_t row, int32_t col);
// False if a scale, minimum or float weight of these source rows is NaN or infinite.
bool finite(SourceType type, std::span<const std::byte> rows);

}  // namespace headrace::kernels

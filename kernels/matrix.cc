#include "kernels/matrix.h"

#include <bit>
#include <cstring>

#include "kernels/check.h"
#include "kernels/half.h"
#include "kernels/matrix_fragments.h"

namespace headrace::kernels {
namespace {

constexpr int kHalfRows = kTileRows / 2;  // rows of one line
constexpr size_t kLine = 64;

template <class T>
T get(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Where a unit keeps the bytes of row `r`, from the unit's start.
constexpr size_t scale_at(int r) { return 2 * static_cast<size_t>(r); }
constexpr size_t minimum_at(int r) { return kLine + 2 * static_cast<size_t>(r); }
// Dword `j` of row `r`, with `lines` lines for 16 rows, the first of them at `first`.
constexpr size_t dword_at(size_t first, int lines, int r, int j) {
  return first + kLine * static_cast<size_t>(r / kHalfRows * lines + j) +
         4 * static_cast<size_t>(r % kHalfRows);
}
constexpr int kNibbleLines = 4;
constexpr int kByteLines = 8;

void pack_q4(const std::byte* block, bool minimum, int r, std::byte* unit) {
  std::memcpy(unit + scale_at(r), block, 2);
  block += 2;
  if (minimum) {
    std::memcpy(unit + minimum_at(r), block, 2);
    block += 2;
  }
  const size_t first = minimum ? 2 * kLine : kLine;
  for (int j = 0; j < kNibbleLines; j++)
    std::memcpy(unit + dword_at(first, kNibbleLines, r, j), block + 4 * j, 4);
}

void pack_q8(const std::byte* block, int r, std::byte* unit) {
  std::memcpy(unit + scale_at(r), block, 2);
  for (int j = 0; j < kByteLines; j++) {
    const uint32_t four = get<uint32_t>(block + 2 + 4 * j) ^ 0x80808080u;
    std::memcpy(unit + dword_at(kLine, kByteLines, r, j), &four, 4);
  }
}

// Units of a row that does not exist: zeros. W8 stores q ^ 0x80, so its zero is 0x80.
void pack_nothing(WeightType type, int r, std::byte* unit) {
  if (type == WeightType::kW8) {
    constexpr std::byte kZeroBlock[34] = {};
    pack_q8(kZeroBlock, r, unit);
  } else if (quantized(type)) {
    constexpr std::byte kZeroBlock[20] = {};
    pack_q4(kZeroBlock, type == WeightType::kW4Min, r, unit);
  }
}

void pack_float(size_t element, const std::byte* row, int cols, int u, int r, std::byte* unit) {
  for (int k = 0; k < kGroup; k++) {
    std::byte* to = unit + element * static_cast<size_t>(k * kTileRows + r);
    const int col = u * kGroup + k;
    if (row != nullptr && col < cols)
      std::memcpy(to, row + element * static_cast<size_t>(col), element);
    else
      std::memset(to, 0, element);
  }
}

size_t element_bytes(WeightType type) { return type == WeightType::kF32 ? 4 : 2; }

float get_bf16(const std::byte* p) {
  return std::bit_cast<float>(static_cast<uint32_t>(get<uint16_t>(p)) << 16);
}

float float_weight(WeightType type, const std::byte* p) {
  switch (type) {
    case WeightType::kF32:
      return get<float>(p);
    case WeightType::kF16:
      return half_to_float(get<uint16_t>(p));
    default:
      return get_bf16(p);
  }
}

// The 32 weights of one row in one unit.
void unpack_unit(WeightType type, const std::byte* unit, int r, float* out) {
  if (!quantized(type)) {
    const size_t element = element_bytes(type);
    for (int k = 0; k < kGroup; k++)
      out[k] = float_weight(type, unit + element * static_cast<size_t>(k * kTileRows + r));
    return;
  }
  const float scale = half_to_float(get<uint16_t>(unit + scale_at(r)));
  const bool bytes = type == WeightType::kW8;
  const bool minimum = type == WeightType::kW4Min;
  const size_t first = minimum ? 2 * kLine : kLine;
  const int lines = bytes ? kByteLines : kNibbleLines;
  uint8_t q[kGroup];
  for (int j = 0; j < lines; j++) std::memcpy(q + 4 * j, unit + dword_at(first, lines, r, j), 4);
  if (bytes) {
    for (int k = 0; k < kGroup; k++) out[k] = scale * static_cast<float>(int{q[k]} - 128);
    return;
  }
  // The products are exact: 11 bits of scale times 4 bits.
  const float offset = minimum ? half_to_float(get<uint16_t>(unit + minimum_at(r))) : 0.0f;
  const int zero = minimum ? 0 : 8;
  for (int k = 0; k < kGroup / 2; k++) {
    out[k] = scale * static_cast<float>((q[k] & 15) - zero);
    out[kGroup / 2 + k] = scale * static_cast<float>((q[k] >> 4) - zero);
  }
  for (int k = 0; minimum && k < kGroup; k++) out[k] += offset;
}

// In which tile a row stands; in it at row % kTileRows.
int32_t tile_of(const Matrix& m, int32_t row) {
  if (!m.paired) return row / kTileRows;
  const int32_t half = m.rows / 2;
  return row < half ? row / kTileRows * 2 : (row - half) / kTileRows * 2 + 1;
}

bool finite16(SourceType type, uint16_t h) {
  const uint16_t exponent = type == SourceType::kBf16 ? 0x7f80 : 0x7c00;
  return (h & exponent) != exponent;
}

}  // namespace

const char* name(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "f32";
    case WeightType::kF16:
      return "f16";
    case WeightType::kBf16:
      return "bf16";
    case WeightType::kW8:
      return "w8";
    case WeightType::kW4:
      return "w4";
    case WeightType::kW4Min:
      return "w4min";
  }
  return "?";
}

size_t source_row_bytes(SourceType type, int64_t cols) {
  const auto n = static_cast<size_t>(cols);
  switch (type) {
    case SourceType::kF32:
      return 4 * n;
    case SourceType::kF16:
    case SourceType::kBf16:
      return 2 * n;
    case SourceType::kQ8_0:
      return n / kGroup * 34;
    case SourceType::kQ4_0:
      return n / kGroup * 18;
    case SourceType::kQ4_1:
      return n / kGroup * 20;
  }
  return 0;
}

WeightType packed_type(SourceType type) {
  switch (type) {
    case SourceType::kF32:
      return WeightType::kF32;
    case SourceType::kF16:
      return WeightType::kF16;
    case SourceType::kBf16:
      return WeightType::kBf16;
    case SourceType::kQ8_0:
      return WeightType::kW8;
    case SourceType::kQ4_0:
      return WeightType::kW4;
    case SourceType::kQ4_1:
      return WeightType::kW4Min;
  }
  return WeightType::kF32;
}

size_t unit_bytes(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return size_t{4} * kGroup * kTileRows;
    case WeightType::kF16:
    case WeightType::kBf16:
      return size_t{2} * kGroup * kTileRows;
    case WeightType::kW8:
      return 17 * kLine;
    case WeightType::kW4:
      return 9 * kLine;
    case WeightType::kW4Min:
      return 10 * kLine;
  }
  return 0;
}

int32_t Matrix::tiles() const {
  const int tile = tiling == Tiling::kFragments ? kStripRows : kTileRows;
  return (rows + tile - 1) / tile;
}

int32_t Matrix::units() const {
  const int unit = tiling == Tiling::kFragments ? kStripGroup : kGroup;
  return (cols + unit - 1) / unit;
}

size_t Matrix::tile_bytes() const {
  const size_t unit = tiling == Tiling::kFragments ? fragment_unit_bytes(type) : unit_bytes(type);
  return unit * static_cast<size_t>(units());
}

size_t packed_bytes(WeightType type, int64_t rows, int64_t cols) {
  const auto tiles = static_cast<size_t>((rows + kTileRows - 1) / kTileRows);
  const auto units = static_cast<size_t>((cols + kGroup - 1) / kGroup);
  return unit_bytes(type) * tiles * units;
}

void pack_tile(SourceType from, const std::byte* source, int32_t rows, int32_t cols, bool paired,
               int32_t tile, std::byte* to) {
  KERNELS_CHECK(!paired || rows % (2 * kTileRows) == 0);
  const WeightType type = packed_type(from);
  const size_t row_bytes = source_row_bytes(from, cols);
  const int units = (cols + kGroup - 1) / kGroup;
  const int64_t first = paired ? tile % 2 * int64_t{rows / 2} + int64_t{tile / 2} * kTileRows
                               : int64_t{tile} * kTileRows;
  const size_t block = row_bytes / static_cast<size_t>(units > 0 ? units : 1);
  std::byte* unit = to + unit_bytes(type) * static_cast<size_t>(units) * static_cast<size_t>(tile);
  for (int u = 0; u < units; u++, unit += unit_bytes(type)) {
    for (int r = 0; r < kTileRows; r++) {
      const int64_t row = first + r;
      const std::byte* from_row =
          row < rows ? source + row_bytes * static_cast<size_t>(row) : nullptr;
      if (!quantized(type))
        pack_float(element_bytes(type), from_row, cols, u, r, unit);
      else if (from_row == nullptr)
        pack_nothing(type, r, unit);
      else if (type == WeightType::kW8)
        pack_q8(from_row + block * static_cast<size_t>(u), r, unit);
      else
        pack_q4(from_row + block * static_cast<size_t>(u), type == WeightType::kW4Min, r, unit);
    }
  }
}

void unpack_row(const Matrix& m, int32_t row, float* out) {
  if (m.tiling == Tiling::kFragments) {
    unpack_fragment_row(m, row, out);
    return;
  }
  const std::byte* unit = m.data + m.tile_bytes() * static_cast<size_t>(tile_of(m, row));
  float last[kGroup];
  for (int k = 0; k < m.cols; k += kGroup, unit += unit_bytes(m.type)) {
    const bool whole = m.cols - k >= kGroup;
    unpack_unit(m.type, unit, row % kTileRows, whole ? out + k : last);
    if (!whole) std::memcpy(out + k, last, sizeof(float) * static_cast<size_t>(m.cols - k));
  }
}

float weight_at(const Matrix& m, int32_t row, int32_t col) {
  if (m.tiling == Tiling::kFragments) {
    float fragment[kStripGroup];
    unpack_fragment_unit(m, row, col / kStripGroup, fragment);
    return fragment[col % kStripGroup];
  }
  float unit[kGroup];
  unpack_unit(m.type,
              m.data + m.tile_bytes() * static_cast<size_t>(tile_of(m, row)) +
                  unit_bytes(m.type) * static_cast<size_t>(col / kGroup),
              row % kTileRows, unit);
  return unit[col % kGroup];
}

bool finite(SourceType type, std::span<const std::byte> rows) {
  size_t step = 0;  // bytes from one value to check to the next
  switch (type) {
    case SourceType::kF32: {
      // Branch-free over the whole span: it is gigabytes at start-up.
      uint32_t bad = 0;
      for (size_t i = 0; i + 4 <= rows.size(); i += 4)
        bad |= (get<uint32_t>(rows.data() + i) & 0x7f800000u) == 0x7f800000u;
      return bad == 0;
    }
    case SourceType::kF16:
    case SourceType::kBf16:
      step = 2;
      break;
    case SourceType::kQ8_0:
      step = 34;
      break;
    case SourceType::kQ4_0:
      step = 18;
      break;
    case SourceType::kQ4_1:
      step = 20;
      break;
  }
  bool good = true;
  for (size_t i = 0; i + step <= rows.size(); i += step) {
    good &= finite16(type, get<uint16_t>(rows.data() + i));
    if (type == SourceType::kQ4_1) good &= finite16(type, get<uint16_t>(rows.data() + i + 2));
  }
  return good;
}

}  // namespace headrace::kernels

#include "kernels/matrix_fragments.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/check.h"
#include "kernels/half.h"

namespace headrace::kernels {
namespace {

constexpr size_t kLine = 512;
constexpr int kLaneRows = 8;    // rows of a strip that lanes count: g; row g + 8 stands beside it
constexpr int kRun = 8;         // neighbouring k of a lane and group
constexpr size_t kScales = 64;  // bytes of a unit's scales, and of its minima
constexpr uint32_t kUpper = 0xffff0000;  // the bf16 that an f32 begins with

// Lines of quants or floats in a unit.
size_t lines(WeightType type) {
  switch (type) {
    case WeightType::kW4:
    case WeightType::kW4Min:
      return 1;
    case WeightType::kW8:
      return 2;
    case WeightType::kF16:
    case WeightType::kBf16:
      return 4;
    case WeightType::kF32:
      return 12;
  }
  return 0;
}

// Where a weight stands: `r` is its row in the strip, `k` its place in the unit.
struct Place {
  Place(int r, int k)
      : lane(static_cast<size_t>(r % kLaneRows * 4 + k % kGroup / kRun)),
        upper(static_cast<size_t>(r / kLaneRows)),
        group(static_cast<size_t>(k / kGroup)),
        element(static_cast<size_t>(k % kRun)) {}
  size_t nibbles() const { return 16 * lane + 8 * group + 4 * upper; }  // of its word of eight
  size_t byte() const { return kLine * group + 16 * lane + 8 * upper + element; }
  // Of two bytes. planes: lines of each k16 step, plane: which of them.
  size_t half(size_t planes, size_t plane) const {
    const size_t line = (2 * group + element / 4) * planes + plane;
    const size_t reg = element % 4 / 2 * 2 + upper;
    return kLine * line + 16 * lane + 4 * reg + 2 * (element % 2);
  }
  size_t scale() const { return 4 * (group * kLaneRows + lane / 4) + 2 * upper; }

  size_t lane, upper, group, element;
};

template <class T>
T get(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void put(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// The source row that stands as row `r` of a strip, and the other way round.
int32_t source_row(int32_t rows, bool paired, int32_t strip, int r) {
  if (!paired) return strip * kStripRows + r;
  return r / kLaneRows * (rows / 2) + strip * kLaneRows + r % kLaneRows;
}
struct StripRow {
  int32_t strip;
  int r;
};
StripRow strip_row(const Matrix& m, int32_t row) {
  if (!m.paired) return {row / kStripRows, row % kStripRows};
  const int32_t half = m.rows / 2;
  return {row % half / kLaneRows, row / half * kLaneRows + row % half % kLaneRows};
}

// One GGUF block, 32 weights of one row: quants and scales, no padding between them.
void pack_block(WeightType type, const std::byte* block, int r, int group, std::byte* unit) {
  std::byte* scales = unit + kLine * lines(type);
  const size_t scale = Place(r, group * kGroup).scale();
  std::memcpy(scales + scale, block, 2);
  block += 2;
  if (type == WeightType::kW4Min) {
    std::memcpy(scales + kScales + scale, block, 2);
    block += 2;
  }
  for (int first = 0; first < kGroup; first += kRun) {
    const Place at(r, group * kGroup + first);
    if (type == WeightType::kW8) {
      std::memcpy(unit + at.byte(), block + first, kRun);
      continue;
    }
    // Low nibbles are the first sixteen, high ones the others.
    const std::byte* pairs = block + first % 16;
    uint32_t word = 0;
    for (int e = 0; e < kRun; e++) {
      const uint32_t quant = static_cast<uint32_t>(pairs[e]) >> (first / 16 * 4) & 15;
      word |= quant << kFragmentShift[e];
    }
    put(unit + at.nibbles(), word);
  }
}

void pack_float(WeightType type, const std::byte* value, const Place& at, std::byte* unit) {
  if (type != WeightType::kF32) {
    std::memcpy(unit + at.half(1, 0), value, 2);
    return;
  }
  float rest = get<float>(value);
  for (size_t plane = 0; plane < 3; plane++) {
    const uint32_t part = std::bit_cast<uint32_t>(rest) & kUpper;
    put(unit + at.half(3, plane), static_cast<uint16_t>(part >> 16));
    rest -= std::bit_cast<float>(part);
  }
}

float fragment_weight(WeightType type, const std::byte* unit, const Place& at) {
  const std::byte* scales = unit + kLine * lines(type) + at.scale();
  const auto plane = [&](size_t p) { return bf16_to_float(get<uint16_t>(unit + at.half(3, p))); };
  const auto quant = [&] {
    return static_cast<int>(get<uint32_t>(unit + at.nibbles()) >> kFragmentShift[at.element] & 15);
  };
  switch (type) {
    case WeightType::kF32:
      return plane(0) + (plane(1) + plane(2));
    case WeightType::kF16:
      return half_to_float(get<uint16_t>(unit + at.half(1, 0)));
    case WeightType::kBf16:
      return bf16_to_float(get<uint16_t>(unit + at.half(1, 0)));
    case WeightType::kW8:
      return half_to_float(get<uint16_t>(scales)) *
             static_cast<float>(get<int8_t>(unit + at.byte()));
    case WeightType::kW4:
      return half_to_float(get<uint16_t>(scales)) * static_cast<float>(quant() - 8);
    case WeightType::kW4Min:
      return half_to_float(get<uint16_t>(scales)) * static_cast<float>(quant()) +
             half_to_float(get<uint16_t>(scales + kScales));
  }
  return 0;
}

}  // namespace

size_t fragment_unit_bytes(WeightType type) {
  const size_t tables = type == WeightType::kW4Min ? 2 : quantized(type) ? 1 : 0;
  return kLine * lines(type) + kScales * tables;
}

size_t fragment_bytes(WeightType type, int64_t rows, int64_t cols) {
  const auto strips = static_cast<size_t>((rows + kStripRows - 1) / kStripRows);
  const auto units = static_cast<size_t>((cols + kStripGroup - 1) / kStripGroup);
  return fragment_unit_bytes(type) * strips * units;
}

void pack_strip(SourceType from, const std::byte* source, int32_t rows, int32_t cols, bool paired,
                int32_t strip, std::byte* to) {
  KERNELS_CHECK(!paired || rows % kStripRows == 0);
  const WeightType type = packed_type(from);
  const size_t row_bytes = source_row_bytes(from, cols);
  const size_t block = source_row_bytes(from, kGroup);
  const size_t element = row_bytes / static_cast<size_t>(std::max(cols, 1));
  const size_t unit_size = fragment_unit_bytes(type);
  const int units = (cols + kStripGroup - 1) / kStripGroup;
  std::byte* unit = to + unit_size * static_cast<size_t>(units) * static_cast<size_t>(strip);
  for (int u = 0; u < units; u++, unit += unit_size) {
    std::memset(unit, 0, unit_size);
    // Zero bytes are zero weights, but for W4's, whose scale is zero then.
    for (int r = 0; r < kStripRows; r++) {
      const int32_t row = source_row(rows, paired, strip, r);
      if (row >= rows) continue;
      const std::byte* values = source + row_bytes * static_cast<size_t>(row);
      const int first = u * kStripGroup;
      const int count = std::min(kStripGroup, cols - first);
      if (quantized(type)) {
        for (int h = 0; h < count / kGroup; h++) {
          const auto index = static_cast<size_t>(first / kGroup + h);
          pack_block(type, values + block * index, r, h, unit);
        }
      } else {
        for (int k = 0; k < count; k++)
          pack_float(type, values + element * static_cast<size_t>(first + k), Place(r, k), unit);
      }
    }
  }
}

void unpack_fragment_unit(const Matrix& m, int32_t row, int32_t unit, float* out) {
  const StripRow at = strip_row(m, row);
  const size_t index =
      static_cast<size_t>(at.strip) * static_cast<size_t>(m.units()) + static_cast<size_t>(unit);
  const std::byte* from = m.data + fragment_unit_bytes(m.type) * index;
  for (int k = 0; k < kStripGroup; k++) out[k] = fragment_weight(m.type, from, Place(at.r, k));
}

void unpack_fragment_row(const Matrix& m, int32_t row, float* out) {
  float unit[kStripGroup];
  for (int32_t u = 0; u < m.units(); u++) {
    unpack_fragment_unit(m, row, u, unit);
    std::copy_n(unit, std::min(kStripGroup, m.cols - u * kStripGroup), out + u * kStripGroup);
  }
}

}  // namespace headrace::kernels

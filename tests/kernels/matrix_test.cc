#include "kernels/matrix.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "kernels/half.h"
#include "tests/kernels/weights.h"

namespace headrace::kernels {
namespace {

using namespace testing;

constexpr SourceType kAll[] = {SourceType::kF32,  SourceType::kF16,  SourceType::kBf16,
                               SourceType::kQ8_0, SourceType::kQ4_0, SourceType::kQ4_1};

// A value as the GGUF formats define it, read straight from the source bytes.
float source_value(SourceType type, const std::vector<std::byte>& bytes, int cols, int row,
                   int col) {
  const std::byte* p = bytes.data() + source_row_bytes(type, cols) * static_cast<size_t>(row);
  const auto half_at = [](const std::byte* at) {
    uint16_t h;
    std::memcpy(&h, at, 2);
    return half_to_float(h);
  };
  const auto i = static_cast<size_t>(col % 32);
  const auto block = static_cast<size_t>(col / 32);
  const auto nibble = [&](const std::byte* q) {
    const auto two = static_cast<int>(q[i % 16]);
    return static_cast<float>(i < 16 ? two & 15 : two >> 4);
  };
  switch (type) {
    case SourceType::kF32: {
      float f;
      std::memcpy(&f, p + 4 * col, 4);
      return f;
    }
    case SourceType::kF16:
      return half_at(p + 2 * col);
    case SourceType::kBf16: {
      uint32_t wide = 0;
      std::memcpy(reinterpret_cast<char*>(&wide) + 2, p + 2 * col, 2);
      float f;
      std::memcpy(&f, &wide, 4);
      return f;
    }
    case SourceType::kQ8_0:
      p += 34 * block;
      return half_at(p) * static_cast<float>(static_cast<int8_t>(p[2 + i]));
    case SourceType::kQ4_0:
      p += 18 * block;
      return half_at(p) * (nibble(p + 2) - 8);
    case SourceType::kQ4_1:
      p += 20 * block;
      return half_at(p) * nibble(p + 4) + half_at(p + 2);
  }
  return NAN;
}

TEST_CASE("every format unpacks to what its file holds") {
  std::mt19937 rng(1);
  for (SourceType type : kAll) {
    for (int rows : {1, 31, 32, 33, 70}) {
      for (int cols : {32, 96, 576}) {
        const Weights w(type, rows, cols, rng);
        CAPTURE(name(w.matrix.type));
        std::vector<float> row(static_cast<size_t>(cols));
        bool equal = true;
        for (int r = 0; r < rows; r++) {
          unpack_row(w.matrix, r, row.data());
          for (int c = 0; c < cols; c++) {
            const float truth = source_value(type, w.source, cols, r, c);
            equal &= truth == row[static_cast<size_t>(c)] && truth == weight_at(w.matrix, r, c);
          }
        }
        CHECK(equal);
      }
    }
  }
}

TEST_CASE("float formats take any number of columns, and padding is zero") {
  std::mt19937 rng(2);
  for (SourceType type : {SourceType::kF32, SourceType::kF16, SourceType::kBf16}) {
    for (int cols : {1, 5, 33, 63}) {
      const Weights w(type, 3, cols, rng);
      CHECK(w.matrix.units() == (cols + 31) / 32);
      for (int r = 0; r < 3; r++) {
        for (int c = 0; c < cols; c++)
          CHECK(weight_at(w.matrix, r, c) == source_value(type, w.source, cols, r, c));
        for (int c = cols; c < 32 * w.matrix.units(); c++) CHECK(weight_at(w.matrix, r, c) == 0);
      }
    }
  }
  for (SourceType type : kAll) {
    const Weights w(type, 3, 64, rng);
    for (int r = 3; r < 32; r++) CHECK(weight_at(w.matrix, r, 40) == 0);
  }
}

TEST_CASE("sizes are what the header says") {
  CHECK(unit_bytes(WeightType::kW4) == 576);
  CHECK(unit_bytes(WeightType::kW4Min) == 640);
  CHECK(unit_bytes(WeightType::kW8) == 1088);
  CHECK(unit_bytes(WeightType::kF32) == 4096);
  CHECK(packed_bytes(WeightType::kW4, 33, 64) == 2 * 2 * 576);
  CHECK(packed_bytes(WeightType::kF16, 1, 1) == 2048);
  CHECK(source_row_bytes(SourceType::kQ4_1, 64) == 40);
  CHECK(source_row_bytes(SourceType::kQ8_0, 64) == 68);
  const Matrix m{WeightType::kW8, 100, 96, nullptr};
  CHECK(m.tiles() == 4);
  CHECK(m.bytes() == packed_bytes(WeightType::kW8, 100, 96));
  // No int32 on the way.
  CHECK(packed_bytes(WeightType::kF32, 1 << 20, 1 << 14) == size_t{1} << 36);
}

TEST_CASE("finite sees every scale, minimum and float, and nothing else") {
  std::mt19937 rng(3);
  for (SourceType type : kAll) {
    std::vector<std::byte> bytes = random_source(type, 2, 64, rng);
    CHECK(finite(type, bytes));
    const size_t last = bytes.size();
    if (type == SourceType::kF32) {
      for (float bad : {INFINITY, -INFINITY, NAN}) {
        std::memcpy(bytes.data() + last - 4, &bad, 4);
        CHECK_FALSE(finite(type, bytes));
      }
      continue;
    }
    const size_t block = type == SourceType::kQ8_0   ? 34
                         : type == SourceType::kQ4_0 ? 18
                         : type == SourceType::kQ4_1 ? 20
                                                     : 2;
    const int bad_high = type == SourceType::kBf16 ? 0x7f80 : 0x7c00;
    for (uint16_t h : {bad_high, bad_high | 0x8000, bad_high | 1}) {
      auto copy = bytes;
      std::memcpy(copy.data() + last - block, &h, 2);
      CHECK_FALSE(finite(type, copy));
      if (type == SourceType::kQ4_1) {
        copy = bytes;
        std::memcpy(copy.data() + last - block + 2, &h, 2);
        CHECK_FALSE(finite(type, copy));
      }
      if (block > 2) {  // quants may hold any bits
        copy = bytes;
        std::memcpy(copy.data() + last - 2, &h, 2);
        CHECK(finite(type, copy));
      }
    }
  }
}

TEST_CASE("a paired matrix is the same one, its halves tile by tile") {
  std::mt19937 rng(9);
  for (SourceType type : kAll) {
    CAPTURE(name(packed_type(type)));
    const auto source = random_source(type, 128, 64, rng);
    const Weights plain(type, 128, 64, source), paired(type, 128, 64, source, true);
    int different = 0;
    std::vector<float> a(64), b(64);
    for (int r = 0; r < 128; r++) {
      unpack_row(plain.matrix, r, a.data());
      unpack_row(paired.matrix, r, b.data());
      different += a != b;
      for (int k = 0; k < 64; k += 7)
        different += weight_at(plain.matrix, r, k) != weight_at(paired.matrix, r, k);
    }
    CHECK(different == 0);
    const size_t tile = plain.matrix.tile_bytes();
    for (const auto& [at, from] : {std::pair{0, 0}, {1, 2}, {2, 1}, {3, 3}})
      CHECK(std::memcmp(paired.packed.data() + static_cast<size_t>(at) * tile,
                        plain.packed.data() + static_cast<size_t>(from) * tile, tile) == 0);
  }
}

}  // namespace
}  // namespace headrace::kernels

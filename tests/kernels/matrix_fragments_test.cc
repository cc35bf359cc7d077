#include "kernels/matrix_fragments.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/ops.h"
#include "tests/kernels/weights.h"

namespace headrace::kernels {
namespace {

using namespace testing;

constexpr SourceType kAll[] = {SourceType::kF32,  SourceType::kF16,  SourceType::kBf16,
                               SourceType::kQ8_0, SourceType::kQ4_0, SourceType::kQ4_1};

// The same source as lanes and as fragments.
struct Both {
  Weights lanes;
  Array<std::byte> packed;
  Matrix fragments;

  Both(SourceType type, int rows, int cols, bool paired, std::mt19937& rng)
      : lanes(type, rows, cols, rng),
        packed(fragment_bytes(packed_type(type), rows, cols)),
        fragments{packed_type(type), rows, cols, packed.data(), Tiling::kFragments, paired} {
    // Backwards: strips are independent.
    for (int s = fragments.tiles() - 1; s >= 0; s--)
      pack_strip(type, lanes.source.data(), rows, cols, paired, s, packed.data());
  }
};

int columns_of(SourceType type, int cols) {
  return quantized(packed_type(type)) ? (cols + 31) / 32 * 32 : cols;
}

TEST_CASE("three planes are an f32 down to 2^-110, and lose less than 2^-133 below") {
  constexpr uint32_t kMantissas[] = {0, 1, 0x7f, 0x80, 0x8001, 0x55aa55, 0x7fffff};
  const auto back = [](float value) {
    const std::vector<float> source(64, value);
    std::vector<std::byte> packed(fragment_bytes(WeightType::kF32, 1, 64));
    pack_strip(SourceType::kF32, reinterpret_cast<const std::byte*>(source.data()), 1, 64, false, 0,
               packed.data());
    return weight_at({WeightType::kF32, 1, 64, packed.data(), Tiling::kFragments, false}, 0, 17);
  };
  bool lost = false;
  for (const float sign : {1.0f, -1.0f}) {
    for (int exponent = -149; exponent < 128; exponent++) {
      for (const uint32_t mantissa : kMantissas) {
        // Below f32's normal numbers: those that there are.
        const double whole = std::ldexp(1 + mantissa / double{1 << 23}, exponent);
        const float value = sign * static_cast<float>(whole);
        CAPTURE(value);
        if (std::abs(value) >= kPlanesExact) {
          CHECK(back(value) == value);
        } else {
          CHECK(std::abs(double{back(value)} - value) < 0x1p-133);
          lost |= exponent == -111 && back(value) != value;
        }
      }
    }
  }
  CHECK(lost);  // so the bound is none too high
}

TEST_CASE("fragments give back the weights that lanes give, paired or not") {
  std::mt19937 rng(1);
  for (SourceType type : kAll) {
    for (int rows : {1, 8, 15, 16, 17, 48, 96}) {
      for (int wanted : {1, 32, 33, 64, 65, 96, 200, 576}) {
        for (bool paired : {false, true}) {
          if (paired && rows % 16 != 0) continue;
          const int cols = columns_of(type, wanted);
          const Both w(type, rows, cols, paired, rng);
          CAPTURE(name(w.fragments.type));
          CAPTURE(rows);
          CAPTURE(cols);
          CAPTURE(paired);
          CHECK(w.packed.guarded());
          std::vector<float> truth(static_cast<size_t>(cols));
          std::vector<float> got(truth.size());
          bool equal = true;
          for (int r = 0; r < rows; r++) {
            unpack_row(w.lanes.matrix, r, truth.data());
            unpack_row(w.fragments, r, got.data());
            equal &= truth == got && weight_at(w.fragments, r, cols - 1) == truth.back();
          }
          CHECK(equal);
        }
      }
    }
  }
}

// What follows reads the packed bytes by the words of the header alone.

template <class T>
T read(const Both& w, size_t at) {
  T v;
  std::memcpy(&v, w.packed.data() + at, sizeof v);
  return v;
}

struct At {
  size_t unit;  // its first byte
  size_t h, g, t, e, upper;
};
// Row `row` stands in which strip, and there as which row?
At find(const Both& w, int row, int k) {
  const int rows = w.fragments.rows;
  int strip = row / 16;
  int r = row % 16;
  if (w.fragments.paired) {
    const bool second = row >= rows / 2;
    const int of_half = row - (second ? rows / 2 : 0);
    strip = of_half / 8;
    r = of_half % 8 + (second ? 8 : 0);
  }
  const size_t units = (static_cast<size_t>(w.fragments.cols) + 63) / 64;
  const auto number = [](int i) { return static_cast<size_t>(i); };
  return {(number(strip) * units + number(k / 64)) * fragment_unit_bytes(w.fragments.type),
          number(k % 64 / 32),
          number(r % 8),
          number(k % 32 / 8),
          number(k % 8),
          number(r / 8)};
}

float described(const Both& w, int row, int k) {
  constexpr size_t kShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};
  const At at = find(w, row, k);
  const size_t lane = at.unit + 16 * (4 * at.g + at.t);
  const auto table = [&](size_t first) {
    return half_to_float(read<uint16_t>(w, at.unit + first + 32 * at.h + 4 * at.g + 2 * at.upper));
  };
  const auto line_of_two = [&](size_t line) {
    const size_t registers[2][2] = {{0, 1}, {2, 3}};  // by pair of k, then row
    return read<uint16_t>(
        w, lane + 512 * line + 4 * registers[at.e % 4 / 2][at.upper] + 2 * (at.e % 2));
  };
  const size_t s = at.e / 4;
  switch (w.fragments.type) {
    case WeightType::kW4:
    case WeightType::kW4Min: {
      const auto word = read<uint32_t>(w, lane + 8 * at.h + 4 * at.upper);
      const auto q = static_cast<float>(word >> kShift[at.e] & 15);
      return w.fragments.type == WeightType::kW4 ? table(512) * (q - 8)
                                                 : table(512) * q + table(576);
    }
    case WeightType::kW8:
      return table(1024) * read<int8_t>(w, lane + 512 * at.h + 8 * at.upper + at.e);
    case WeightType::kF16:
      return half_to_float(line_of_two(2 * at.h + s));
    case WeightType::kBf16:
      return bf16_to_float(line_of_two(2 * at.h + s));
    case WeightType::kF32: {
      float sum = 0;
      for (size_t p = 3; p-- > 0;) sum += bf16_to_float(line_of_two((2 * at.h + s) * 3 + p));
      return sum;
    }
  }
  return 0;
}

TEST_CASE("every weight stands where the header says") {
  std::mt19937 rng(2);
  for (SourceType type : kAll) {
    for (bool paired : {false, true}) {
      const Both w(type, paired ? 48 : 37, columns_of(type, 100), paired, rng);
      CAPTURE(name(w.fragments.type));
      CAPTURE(paired);
      bool equal = true;
      for (int r = 0; r < w.fragments.rows; r++) {
        for (int k = 0; k < w.fragments.cols; k++)
          equal &= described(w, r, k) == weight_at(w.lanes.matrix, r, k);
      }
      CHECK(equal);
    }
  }
}

TEST_CASE("what stands beside the matrix is zero") {
  std::mt19937 rng(3);
  for (SourceType type : kAll) {
    const Both w(type, 5, 32, false, rng);
    for (int r = 0; r < 16; r++) {
      for (int k = 0; k < 64; k++) {
        if (r >= 5 || k >= 32) CHECK(described(w, r, k) == 0);
      }
    }
  }
}

TEST_CASE("sizes are what the header says, and a view knows them") {
  CHECK(fragment_unit_bytes(WeightType::kW4) == 576);
  CHECK(fragment_unit_bytes(WeightType::kW4Min) == 640);
  CHECK(fragment_unit_bytes(WeightType::kW8) == 1088);
  CHECK(fragment_unit_bytes(WeightType::kF16) == 2048);
  CHECK(fragment_unit_bytes(WeightType::kBf16) == 2048);
  CHECK(fragment_unit_bytes(WeightType::kF32) == 6144);
  const Matrix m{WeightType::kW4, 33, 65, nullptr, Tiling::kFragments};
  CHECK(m.tiles() == 3);
  CHECK(m.units() == 2);
  CHECK(m.tile_bytes() == 2 * 576);
  CHECK(m.bytes() == fragment_bytes(WeightType::kW4, 33, 65));
  // No int32 on the way.
  CHECK(fragment_bytes(WeightType::kF16, 1 << 20, 1 << 14) == size_t{1} << 35);
}

TEST_CASE("products with fragments are those with lanes") {
  std::mt19937 rng(4);
  for (SourceType type : kAll) {
    const Both w(type, 32, 96, true, rng);
    const auto x = random_floats(size_t{3} * 96, rng);
    Array<float> truth(size_t{3} * 32), got(size_t{3} * 32);
    reference(MatMul{w.lanes.matrix, {.f32 = x.data()}, 3, truth.data(), 32, false});
    reference(MatMul{w.fragments, {.f32 = x.data()}, 3, got.data(), 32, false});
    CHECK(same_bits(got, truth));
  }
}

}  // namespace
}  // namespace headrace::kernels

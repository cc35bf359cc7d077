#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/activation.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/numbers.h"

namespace headrace::simt {

// Normally distributed, a few of them a thousand times larger.
inline std::vector<float> random_floats(size_t count, uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random) * (random() % 97 == 0 ? 1000.0f : 1.0f);
  return out;
}

// What may be zero instead: far below what any sum notices, above where powers are flushed.
constexpr double kNothing = 0x1p-110;

// What an operation delivers, each destination full of NaN beforehand, and how far it is from what
// the reference delivers as f32.
struct RowsCase {
  RowsCase(size_t row_count, size_t row_width)
      : rows(row_count),
        width(row_width),
        pitch(static_cast<size_t>(kernels::bf16_pitch(static_cast<int64_t>(row_width)))),
        f32(std::vector<float>(rows * width, NAN)),
        bf16(std::vector<uint16_t>(rows * pitch, 0x7fc0)),
        sums(std::vector<float>(rows * pitch / 32, NAN)) {}

  kernels::RowsOut out(bool floats, bool halves) const {
    return {.f32 = floats ? f32.get() : nullptr,
            .bf16 = halves ? bf16.get() : nullptr,
            .sums = halves ? sums.get() : nullptr};
  }
  void check_f32(const std::vector<float>& expected, double tolerance) const {
    const std::vector<float> got = f32.values();
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); i++) {
      if (std::abs(double{got[i]} - expected[i]) <= std::abs(expected[i]) * tolerance + kNothing) {
        continue;
      }
      FAIL("f32 " << i << ": " << got[i] << ", expected " << expected[i]);
    }
  }
  // Half a step of bf16 (8 bits) on top of the tolerance; nothing but zeros behind the width; sums
  // of what was delivered.
  void check_bf16(const std::vector<float>& expected, double tolerance) const {
    const std::vector<uint16_t> got = bf16.values();
    const std::vector<float> got_sums = sums.values();
    for (size_t i = 0; i < got.size(); i++) {
      const size_t column = i % pitch;
      const double value = column < width ? expected[i / pitch * width + column] : 0;
      const double bound = std::abs(value) * (0x1p-8 + tolerance) + kNothing;
      if (std::abs(bf16_value(got[i]) - value) <= bound) continue;
      FAIL("bf16 " << i << ": " << bf16_value(got[i]) << ", expected " << value);
    }
    for (size_t g = 0; g < got_sums.size(); g++) {
      double sum = 0;
      double size = 0;
      for (size_t i = 32 * g; i < 32 * g + 32; i++) {
        sum += bf16_value(got[i]);
        size += std::abs(bf16_value(got[i]));
      }
      if (std::abs(got_sums[g] - sum) <= size * 8 * 0x1p-24) continue;
      FAIL("sum " << g << ": " << got_sums[g] << ", expected " << sum);
    }
  }

  size_t rows;
  size_t width;
  size_t pitch;
  DeviceBuffer<float> f32;
  DeviceBuffer<uint16_t> bf16;
  DeviceBuffer<float> sums;
};

// The bits of row `row`, to be compared with those of another run.
inline std::vector<uint32_t> row_bits(const RowsCase& c, size_t row) {
  std::vector<uint32_t> out;
  const auto add = [&](const auto& values, size_t width) {
    for (size_t i = row * width; i < (row + 1) * width; i++) {
      if constexpr (sizeof(values[0]) == 4) {
        out.push_back(std::bit_cast<uint32_t>(values[i]));
      } else {
        out.push_back(values[i]);
      }
    }
  };
  add(c.f32.values(), c.width);
  add(c.bf16.values(), c.pitch);
  add(c.sums.values(), c.pitch / 32);
  return out;
}

}  // namespace headrace::simt

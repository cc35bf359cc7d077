#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/half.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/numbers.h"

namespace headrace::simt {

// One W4 product: quants as written in ops.h, packed here by that text alone, and the result in
// double.
struct W4Case {
  W4Case(uint32_t row_count, uint32_t column_count, uint32_t seed)
      : rows(row_count), columns(column_count) {
    std::mt19937 random(seed);
    const size_t groups = size_t{rows} * columns / cuda::kW4Group;
    x = random_bf16s(columns, seed + 1);
    for (size_t g = 0; g < groups; g++) {
      // Any exponent from 2^-9 to 2^-2, either sign.
      scales.push_back(static_cast<uint16_t>((random() % 8 + 6) << 10 | (random() & 0x83ff)));
    }
    quants.resize(groups * cuda::kW4Group / 8);
    y.resize(rows);
    scale_of_error.resize(rows);
    for (uint32_t r = 0; r < rows; r++) {
      double squares = 0;
      for (uint32_t c = 0; c < columns; c++) {
        const size_t at = size_t{r} * columns + c;
        const uint32_t quant = random() % 16;
        quants[at / 8] |= quant << cuda::kW4Shift[at % 8];
        const double scale = kernels::half_to_float(scales[at / cuda::kW4Group]);
        y[r] += scale * (static_cast<double>(quant) - 8) * bf16_value(x[c]);
        squares += std::pow(scale * bf16_value(x[c]), 2);
      }
      scale_of_error[r] = std::sqrt(squares);
    }
  }

  uint32_t rows;
  uint32_t columns;
  std::vector<uint32_t> quants;
  std::vector<uint16_t> scales;
  std::vector<uint16_t> x;
  std::vector<double> y;
  // Of each row: sqrt(sum (scale x)^2), what rounding errors grow with.
  std::vector<double> scale_of_error;
};

// The matrix on the device.
struct W4OnDevice {
  explicit W4OnDevice(const W4Case& c)
      : quants(c.quants), scales(c.scales), rows(c.rows), columns(c.columns) {}
  cuda::W4Matrix matrix() const { return {quants.get(), scales.get(), rows, columns}; }

  DeviceBuffer<uint32_t> quants;
  DeviceBuffer<uint16_t> scales;
  uint32_t rows;
  uint32_t columns;
};

}  // namespace headrace::simt

#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/matrix_fragments.h"

namespace headrace::simt {

// A random table, unpaired, and its fragments, written by the text of matrix_fragments.h alone.
class FragmentsCase {
 public:
  FragmentsCase(kernels::WeightType t, int row_count, int column_count, uint32_t seed)
      : type(t), rows(row_count), columns(column_count), random_(seed) {
    const int units = (columns + 63) / 64;
    lines_ = t == Type::kF32 ? 12 : !kernels::quantized(t) ? 4 : t == Type::kW8 ? 2 : 1;
    const size_t tables = !kernels::quantized(t) ? 0 : t == Type::kW4Min ? 2 : 1;
    unit_bytes_ = lines_ * 512 + tables * 64;
    strip_bytes_ = unit_bytes_ * static_cast<size_t>(units);
    bytes.resize(strip_bytes_ * static_cast<size_t>((rows + 15) / 16));
    values.resize(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    for (int r = 0; r < rows; r++) {
      for (int k = 0; k < columns; k += 32) {
        kernels::quantized(t) ? put_quants(r, k) : put_floats(r, k);
      }
    }
  }
  // `data`: where the bytes are on the device.
  kernels::Matrix matrix(const std::byte* data) const {
    return {type, rows, columns, data, kernels::Tiling::kFragments, false};
  }

  kernels::WeightType type;
  int rows;
  int columns;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows, columns]

 private:
  using Type = kernels::WeightType;

  std::byte* unit(int r, int k) {
    return bytes.data() + strip_bytes_ * static_cast<size_t>(r / 16) +
           unit_bytes_ * static_cast<size_t>(k / 64);
  }
  // The 16 bytes that the lane with row r and columns k.. takes from a line.
  std::byte* lane(int r, int k, size_t line) {
    const int l = r % 8 * 4 + k % 32 / 8;
    return unit(r, k) + 512 * line + 16 * static_cast<size_t>(l);
  }
  std::byte* table(int r, int k, size_t index) {
    const int at = (k % 64 / 32 * 8 + r % 8) * 2 + r % 16 / 8;
    return unit(r, k) + 512 * lines_ + 64 * index + 2 * static_cast<size_t>(at);
  }
  float put_half(std::byte* to) {
    const auto bits = static_cast<uint16_t>((random_() % 8 + 6) << 10 | (random_() & 0x83ff));
    std::memcpy(to, &bits, 2);
    return kernels::half_to_float(bits);
  }
  float& value(int r, int k) { return values[static_cast<size_t>(r * columns + k)]; }

  void put_quants(int r, int k) {
    const float scale = put_half(table(r, k, 0));
    const float minimum = type == Type::kW4Min ? put_half(table(r, k, 1)) : 0.0f;
    for (int i = 0; i < 32; i++) {
      const int e = i % 8;
      if (type == Type::kW8) {
        const int quant = static_cast<int>(random_() % 256) - 128;
        std::byte* at = lane(r, k + i, static_cast<size_t>(k % 64 / 32));
        at[r % 16 / 8 * 8 + e] = static_cast<std::byte>(quant);
        value(r, k + i) = scale * static_cast<float>(quant);
        continue;
      }
      const auto quant = static_cast<uint32_t>(random_() % 16);
      std::byte* at = lane(r, k + i, 0) + 4 * (k % 64 / 32 * 2 + r % 16 / 8);
      uint32_t word;
      std::memcpy(&word, at, 4);
      word |= quant << kernels::kFragmentShift[e];
      std::memcpy(at, &word, 4);
      const int zero = type == Type::kW4 ? 8 : 0;
      value(r, k + i) = scale * static_cast<float>(static_cast<int>(quant) - zero) + minimum;
    }
  }

  // One 16-bit element of plane `plane` of `planes`.
  void put_plane(int r, int k, size_t planes, size_t plane, uint16_t bits) {
    const auto line = static_cast<size_t>(k % 64 / 32 * 2 + k % 8 / 4);
    std::byte* at = lane(r, k, line * planes + plane);
    std::memcpy(at + 4 * (k % 4 / 2 * 2 + r % 16 / 8) + 2 * (k % 2), &bits, 2);
  }

  void put_floats(int r, int k) {
    std::normal_distribution<float> normal;
    for (int c = k; c < k + 32 && c < columns; c++) {
      float w = normal(random_);
      if (type == Type::kF16) {
        const uint16_t bits = kernels::float_to_half(w);
        w = kernels::half_to_float(bits);
        put_plane(r, c, 1, 0, bits);
      } else if (type == Type::kBf16) {
        const uint16_t bits = kernels::float_to_bf16(w);
        w = kernels::bf16_to_float(bits);
        put_plane(r, c, 1, 0, bits);
      } else {
        float left = w;
        for (size_t plane = 0; plane < 3; plane++) {
          const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(left) >> 16);
          put_plane(r, c, 3, plane, bits);
          left -= kernels::bf16_to_float(bits);
        }
      }
      value(r, c) = w;
    }
  }

  std::mt19937 random_;
  size_t lines_ = 0;
  size_t unit_bytes_ = 0;
  size_t strip_bytes_ = 0;
};

}  // namespace headrace::simt

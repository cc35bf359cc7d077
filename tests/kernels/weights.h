#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/matrix.h"
#include "tests/kernels/harness.h"

// Random weights in a source format, and packed.

namespace headrace::kernels::testing {

inline std::vector<std::byte> random_source(SourceType type, int rows, int cols,
                                            std::mt19937& rng) {
  std::vector<std::byte> bytes(source_row_bytes(type, cols) * static_cast<size_t>(rows));
  std::normal_distribution<float> normal;
  const auto put_half = [&](size_t at, float v) {
    const uint16_t h = float_to_half(v);
    std::memcpy(bytes.data() + at, &h, 2);
  };
  size_t block = 0;  // bytes; 0 for floats
  switch (type) {
    case SourceType::kF32:
      for (size_t i = 0; i < bytes.size(); i += 4) {
        const float v = normal(rng);
        std::memcpy(bytes.data() + i, &v, 4);
      }
      return bytes;
    case SourceType::kF16:
      for (size_t i = 0; i < bytes.size(); i += 2) put_half(i, normal(rng));
      return bytes;
    case SourceType::kBf16:
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const float v = normal(rng);
        std::memcpy(bytes.data() + i, reinterpret_cast<const char*>(&v) + 2, 2);
      }
      return bytes;
    case SourceType::kQ8_0:
      block = 34;
      break;
    case SourceType::kQ4_0:
      block = 18;
      break;
    case SourceType::kQ4_1:
      block = 20;
      break;
  }
  for (auto& b : bytes) b = static_cast<std::byte>(rng());
  for (size_t i = 0; i < bytes.size(); i += block) {
    put_half(i, 0.01f * normal(rng));
    if (type == SourceType::kQ4_1) put_half(i + 2, 0.05f * normal(rng));
  }
  return bytes;
}

struct Weights {
  std::vector<std::byte> source;
  Array<std::byte> packed;
  Matrix matrix;

  Weights(SourceType type, int rows, int cols, std::mt19937& rng, bool paired = false)
      : Weights(type, rows, cols, random_source(type, rows, cols, rng), paired) {}
  Weights(SourceType type, int rows, int cols, std::vector<std::byte> from, bool paired = false)
      : source(std::move(from)),
        packed(packed_bytes(packed_type(type), rows, cols)),
        matrix{.type = packed_type(type),
               .rows = rows,
               .cols = cols,
               .data = packed.data(),
               .paired = paired} {
    for (int t = 0; t < matrix.tiles(); t++)
      pack_tile(type, source.data(), rows, cols, paired, t, packed.data());
  }
};

}  // namespace headrace::kernels::testing

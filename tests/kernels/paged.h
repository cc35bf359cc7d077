#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/kernels/harness.h"

// A small KV pool for tests: sequences get blocks in random order, everything else holds NaN.

namespace headrace::kernels::testing {

class PagedKv {
 public:
  PagedKv(KvLayout layout, uint32_t blocks, std::mt19937& rng)
      : layout_(layout), memory_(layout.block_bytes() * blocks), free_(blocks) {
    std::iota(free_.begin(), free_.end(), 0u);
    std::shuffle(free_.begin(), free_.end(), rng);
  }

  KvPool pool() const { return {layout_, memory_.data()}; }
  const Array<std::byte>& memory() const { return memory_; }
  const KvLayout& layout() const { return layout_; }

  // A block table for `tokens` tokens. It stays where it is.
  const uint32_t* table(int32_t tokens) {
    const auto n = static_cast<size_t>((tokens + layout_.block_tokens - 1) / layout_.block_tokens);
    auto& t = *tables_.emplace_back(std::make_unique<std::vector<uint32_t>>());
    for (size_t i = 0; i < n; ++i) {
      t.push_back(free_.back());
      free_.pop_back();
    }
    return t.data();
  }

  // Writes random K and V of tokens [0, tokens) of every layer and head; other slots stay NaN.
  void fill(const uint32_t* blocks, int32_t tokens, std::mt19937& rng, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    for (int32_t layer = 0; layer < layout_.layers; ++layer) {
      for (int32_t h = 0; h < layout_.kv_heads; ++h) {
        for (int32_t t = 0; t < tokens; ++t) {
          for (int32_t d = 0; d < layout_.head_dim; ++d) {
            put(blocks, layer, h, t, d, true, normal(rng));
            put(blocks, layer, h, t, d, false, normal(rng));
          }
        }
      }
    }
  }

  float get(const uint32_t* blocks, int32_t layer, int32_t h, int32_t t, int32_t d,
            bool key) const {
    const std::byte* p = at(blocks, layer, h, t, d, key);
    if (layout_.type == KvType::kF32) return *reinterpret_cast<const float*>(p);
    return half(*reinterpret_cast<const uint16_t*>(p));
  }
  void put(const uint32_t* blocks, int32_t layer, int32_t h, int32_t t, int32_t d, bool key,
           float value) {
    std::byte* p = at(blocks, layer, h, t, d, key);
    if (layout_.type == KvType::kF32) {
      *reinterpret_cast<float*>(p) = value;
    } else {
      *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(halves(value));
    }
  }

  // By the definition of binary16, independent of the kernels' conversion.
  static float half(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? kNan : sign * HUGE_VALF;
    return sign * (exponent ? std::ldexp(1024.0f + static_cast<float>(mantissa), exponent - 25)
                            : std::ldexp(static_cast<float>(mantissa), -24));
  }
  // Nearest half of a value in range, ties to even.
  static int halves(float x) {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    x = std::fabs(x);
    const int e = std::max(x > 0 ? std::ilogb(x) : -14, -14);
    const auto units = static_cast<int>(std::nearbyint(std::ldexp(x, 10 - e)));
    // A subnormal has fewer than 1024 units; rounding up to 2048 moves on to the next exponent.
    return sign | (units < 1024 ? units : (e + 14) * 1024 + units);
  }

 private:
  std::byte* at(const uint32_t* blocks, int32_t layer, int32_t h, int32_t t, int32_t d,
                bool key) const {
    const int32_t tokens = layout_.block_tokens, slot = t % tokens;
    const int64_t index =
        key ? int64_t{d} * tokens + slot
            : int64_t{layout_.head_dim} * tokens + int64_t{slot} * layout_.head_dim + d;
    return pool().head(blocks[t / tokens], layer, h) +
           index * static_cast<int64_t>(element_bytes(layout_.type));
  }

  KvLayout layout_;
  Array<std::byte> memory_;
  std::vector<uint32_t> free_;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> tables_;
};

}  // namespace headrace::kernels::testing

#include "kernels/kv_element.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace headrace::kernels {
namespace {

constexpr float kE4m3Max = 448;
constexpr float kInt8Max = 127;

// Bytes from a head's begin to an element.
size_t place(const KvLayout& l, KvHalf half, int32_t slot, int32_t d) {
  const auto tokens = static_cast<size_t>(l.block_tokens), dims = static_cast<size_t>(l.head_dim);
  const auto s = static_cast<size_t>(slot), at = static_cast<size_t>(d);
  size_t index = half == KvHalf::kValue ? tokens * dims : 0;
  index += half == KvHalf::kKey && l.order == KvOrder::kLanes ? at * tokens + s : s * dims + at;
  return index * element_bytes(l.type);
}

size_t scale_place(const KvLayout& l, KvHalf half, int32_t slot) {
  const auto tokens = static_cast<size_t>(l.block_tokens);
  const size_t index = half == KvHalf::kValue ? tokens : 0;
  return 2 * tokens * static_cast<size_t>(l.head_dim) +
         (index + static_cast<size_t>(slot)) * sizeof(uint16_t);
}

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <class T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

// A row whose scale is zero or NaN has zeros for elements.
void put(KvType type, std::byte* p, float value, float scale) {
  switch (type) {
    case KvType::kF16:
      return store(p, float_to_half(value));
    case KvType::kF32:
      return store(p, value);
    case KvType::kBf16:
      return store(p, float_to_bf16(value));
    case KvType::kFp8:
      return store(p, scale > 0 ? float_to_e4m3(value / scale) : uint8_t{0});
    case KvType::kInt8:
      return store(p, scale > 0 ? static_cast<int8_t>(std::nearbyint(value / scale)) : int8_t{0});
  }
}

}  // namespace

float e4m3_to_float(uint8_t e) {
  const int exponent = e >> 3 & 15, mantissa = e & 7;
  const float sign = e & 0x80 ? -1.0f : 1.0f;
  if ((e & 0x7f) == 0x7f) return std::nanf("");
  return sign * (exponent > 0 ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                              : std::ldexp(static_cast<float>(mantissa), -9));
}

uint8_t float_to_e4m3(float f) {
  const int sign = std::signbit(f) ? 0x80 : 0;
  if (std::isnan(f)) return static_cast<uint8_t>(sign | 0x7f);
  const float x = std::min(std::fabs(f), kE4m3Max);
  const int e = std::max(x > 0 ? std::ilogb(x) : -6, -6);
  // Steps of its exponent; 16 of them are the next one's 8.
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(x, 3 - e)));
  return static_cast<uint8_t>(sign | (steps < 8 ? steps : (e + 6) * 8 + steps));
}

uint16_t kv_scale(KvType type, float largest) {
  constexpr uint16_t kNan = 0x7e00, kInfinity = 0x7c00;
  const float steps = type == KvType::kFp8 ? kE4m3Max : kInt8Max;
  if (!std::isfinite(largest)) return kNan;
  uint16_t h = float_to_half(largest / steps);
  // Products of 11 and 7 bits are exact.
  if (half_to_float(h) * steps < largest) {
    ++h;
  } else if (h > 0 && half_to_float(static_cast<uint16_t>(h - 1)) * steps >= largest) {
    --h;
  }
  return h >= kInfinity ? kNan : h;
}

float kv_element(const KvLayout& layout, const std::byte* head, KvHalf half, int32_t slot,
                 int32_t d) {
  const std::byte* p = head + place(layout, half, slot, d);
  switch (layout.type) {
    case KvType::kF16:
      return half_to_float(load<uint16_t>(p));
    case KvType::kF32:
      return load<float>(p);
    case KvType::kBf16:
      return bf16_to_float(load<uint16_t>(p));
    case KvType::kFp8:
    case KvType::kInt8:
      break;
  }
  const float scale = half_to_float(load<uint16_t>(head + scale_place(layout, half, slot)));
  return scale * (layout.type == KvType::kFp8 ? e4m3_to_float(load<uint8_t>(p))
                                              : static_cast<float>(load<int8_t>(p)));
}

void get_kv_row(const KvLayout& layout, const std::byte* head, KvHalf half, int32_t slot,
                double* values) {
  if (layout.type == KvType::kF32) {  // of whole models on the reference device
    const std::byte* first = head + place(layout, half, slot, 0);
    const size_t step = place(layout, half, slot, 1) - place(layout, half, slot, 0);
    for (int32_t d = 0; d < layout.head_dim; ++d)
      values[d] = load<float>(first + static_cast<size_t>(d) * step);
    return;
  }
  for (int32_t d = 0; d < layout.head_dim; ++d) values[d] = kv_element(layout, head, half, slot, d);
}

void put_kv_row(const KvLayout& layout, std::byte* head, KvHalf half, int32_t slot,
                const float* values) {
  float scale = 1;
  if (scaled(layout.type)) {
    float largest = 0;
    for (int32_t d = 0; d < layout.head_dim; ++d) {
      const float x = std::fabs(values[d]);
      largest = x > largest || std::isnan(x) ? x : largest;
      if (std::isnan(largest)) break;
    }
    const uint16_t h = kv_scale(layout.type, largest);
    store(head + scale_place(layout, half, slot), h);
    scale = half_to_float(h);
  }
  for (int32_t d = 0; d < layout.head_dim; ++d)
    put(layout.type, head + place(layout, half, slot, d), values[d], scale);
}

}  // namespace headrace::kernels

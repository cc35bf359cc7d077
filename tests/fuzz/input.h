#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "protocol/check.h"

// What every fuzz target has in common.
namespace headrace::fuzz {

// Cuts a fuzzer's bytes into values; past the end everything is zero or empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : bytes_(data, size) {}
  bool empty() const { return bytes_.empty(); }
  size_t left() const { return bytes_.size(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return b;
  }
  uint32_t word() {
    uint32_t w = 0;
    for (int i = 0; i < 4; ++i) w |= uint32_t{byte()} << (8 * i);
    return w;
  }
  std::span<const uint8_t> take(size_t most) {
    const auto out = bytes_.first(std::min(most, bytes_.size()));
    bytes_ = bytes_.subspan(out.size());
    return out;
  }
  std::string text(size_t most) {
    const auto out = take(most);
    return std::string(reinterpret_cast<const char*>(out.data()), out.size());
  }
  // Up to the next 0xFF, which is in no UTF-8, or the end.
  std::string line() {
    const auto end = std::find(bytes_.begin(), bytes_.end(), uint8_t{0xFF});
    std::string out = text(static_cast<size_t>(end - bytes_.begin()));
    byte();
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// Well-formed UTF-8, written anew from table 3-7 of the Unicode standard: a yardstick that shares
// nothing with the code under test.
inline bool is_utf8(const std::string& text) {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto in = [](uint8_t b, uint8_t low, uint8_t high) { return b >= low && b <= high; };
  for (size_t i = 0; i < text.size();) {
    const uint8_t a = at(i), b = at(i + 1), c = at(i + 2), d = at(i + 3);
    if (a < 0x80) {
      i += 1;
    } else if (in(a, 0xC2, 0xDF) && in(b, 0x80, 0xBF)) {
      i += 2;
    } else if (in(a, 0xE0, 0xEF) && in(b, a == 0xE0 ? 0xA0 : 0x80, a == 0xED ? 0x9F : 0xBF) &&
               in(c, 0x80, 0xBF)) {
      i += 3;
    } else if (in(a, 0xF0, 0xF4) && in(b, a == 0xF0 ? 0x90 : 0x80, a == 0xF4 ? 0x8F : 0xBF) &&
               in(c, 0x80, 0xBF) && in(d, 0x80, 0xBF)) {
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace headrace::fuzz

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace headrace::simt {

inline std::vector<std::byte> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(count);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

// CRC-32C a bit at a time, as RFC 3720 (appendix B.4) has it.
inline uint32_t plain_crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffff;
  for (const std::byte b : bytes) {
    crc ^= static_cast<uint32_t>(b);
    for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

}  // namespace headrace::simt

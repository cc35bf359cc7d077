#include "worker/crc32c.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace headrace::worker {
namespace {

std::vector<std::byte> bytes_of(const char* text) {
  std::vector<std::byte> b(std::strlen(text));
  std::memcpy(b.data(), text, b.size());
  return b;
}

// Bit by bit, from the polynomial.
uint32_t plain(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const std::byte b : bytes) {
    crc ^= static_cast<uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

TEST_CASE("published test vectors of RFC 3720 B.4") {
  CHECK(crc32c(bytes_of("123456789")) == 0xE3069283);
  std::vector<std::byte> b(32);
  CHECK(crc32c(b) == 0x8A9136AA);
  for (auto& x : b) x = std::byte{0xFF};
  CHECK(crc32c(b) == 0x62A8AB43);
  for (size_t i = 0; i < 32; ++i) b[i] = static_cast<std::byte>(i);
  CHECK(crc32c(b) == 0x46DD794E);
  for (size_t i = 0; i < 32; ++i) b[i] = static_cast<std::byte>(31 - i);
  CHECK(crc32c(b) == 0x113FDB5C);
}

TEST_CASE("equals the bitwise form at every length, whole and in pieces") {
  std::vector<std::byte> b(67);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::byte>(i * 151 + 7);
  CHECK(crc32c({}) == 0);
  for (size_t n = 0; n <= b.size(); ++n) {
    const std::span<const std::byte> all(b.data(), n);
    REQUIRE(crc32c(all) == plain(all));
    for (size_t cut = 0; cut <= n; cut += 5) {
      REQUIRE(crc32c(all.subspan(cut), crc32c(all.first(cut))) == plain(all));
    }
  }
}

// Around what three streams take at a time, 24 KiB.
TEST_CASE("long ones, and parts of them put together") {
  std::vector<std::byte> b(100001);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::byte>(i * i / 3 + i / 256);
  for (const size_t n : {24575u, 24576u, 24577u, 49152u, 49160u, 100001u}) {
    const std::span<const std::byte> all(b.data(), n);
    REQUIRE(crc32c(all) == plain(all));
    CHECK(crc32c(all.subspan(1000), crc32c(all.first(1000))) == plain(all));
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{777}, n - 1, n})
      CHECK(crc32c_append(crc32c(all.first(cut)), crc32c(all.subspan(cut)), n - cut) == plain(all));
  }
}

}  // namespace
}  // namespace headrace::worker

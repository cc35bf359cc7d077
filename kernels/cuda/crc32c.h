#pragma once

#include <cstddef>
#include <cstdint>

// CRC-32C (Castagnoli, reflected, as in RFC 3720) as arithmetic of polynomials over two elements,
// modulo its own. A polynomial is a word whose uppermost bit is the coefficient of x^0, as the
// checksum's register has it. Appending n zero bits multiplies the register by x^n; a 32-bit word
// of the message, as it lies in memory, counts as that word times x^32. Being linear, parts of a
// message may be added up in any order, each times the power of what follows it.

namespace headrace::cuda {

constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;  // without x^32
constexpr uint32_t kCrc32cOne = 0x80000000;

constexpr uint32_t crc32c_multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 31; i >= 0; i--) {
    if (a >> i & 1) product ^= b;
    b = b >> 1 ^ (b & 1 ? kCrc32cPolynomial : 0);
  }
  return product;
}

// x^n.
constexpr uint32_t crc32c_power(uint64_t n) {
  uint32_t result = kCrc32cOne;
  for (uint32_t square = kCrc32cOne >> 1; n != 0; n /= 2) {
    if (n % 2 != 0) result = crc32c_multiply(result, square);
    square = crc32c_multiply(square, square);
  }
  return result;
}

// Checksum of a message from those of its two parts; `power` is crc32c_power(8 * bytes of the
// second part), worth keeping where parts are alike.
constexpr uint32_t crc32c_append(uint32_t first, uint32_t second, uint32_t power) {
  return crc32c_multiply(first, power) ^ second;
}

}  // namespace headrace::cuda

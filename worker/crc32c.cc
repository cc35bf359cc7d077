#include "worker/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

#include "kernels/cuda/crc32c.h"

namespace headrace::worker {

namespace {

// The instruction takes a word each cycle and gives its result three cycles later: three streams of
// kStream bytes at a time keep it busy. Long enough that joining them costs nothing.
constexpr size_t kStream = size_t{8} << 10;
constexpr uint32_t kOneOn = cuda::crc32c_power(8 * kStream);
constexpr uint32_t kTwoOn = cuda::crc32c_power(16 * kStream);

uint64_t take(uint64_t crc, const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return _mm_crc32_u64(crc, word);
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  uint64_t crc = ~before;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kStream; left -= 3 * kStream, p += 3 * kStream) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      crc = take(crc, p + i);
      second = take(second, p + kStream + i);
      third = take(third, p + 2 * kStream + i);
    }
    crc = cuda::crc32c_multiply(static_cast<uint32_t>(crc), kTwoOn) ^
          cuda::crc32c_multiply(static_cast<uint32_t>(second), kOneOn) ^ third;
  }
  for (; left >= 8; left -= 8, p += 8) crc = take(crc, p);
  uint32_t tail = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++p) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*p));
  return ~tail;
}

uint32_t crc32c_append(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return cuda::crc32c_append(first, second, cuda::crc32c_power(8 * second_bytes));
}

}  // namespace headrace::worker

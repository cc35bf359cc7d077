#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::worker {

// CRC-32C (Castagnoli, reflected, as in RFC 3720) of `bytes` appended to those that gave `before`.
// By the processor's own instruction (SSE4.2, part of x86-64-v2).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The checksum of a message from those of its two parts and the length of the second.
uint32_t crc32c_append(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace headrace::worker

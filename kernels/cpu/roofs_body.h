#pragma once

#include "kernels/cpu/roofs.h"

// Included by roofs_*.cc after the definition of
//   Bytes, kWidth               a register and its bytes
//   load_bytes, mix             one register from memory; an operation that uses it
//   product(sum, w, a)          the widening multiply-add of bytes, 2 * kWidth operations
//   F32, multiply_add           alike for floats

namespace headrace::kernels {
namespace {

constexpr int kStreams = 4;
constexpr int kChains = 12;      // enough to hide a latency of 4 cycles on two ports, and some more
constexpr size_t kAhead = 2304;  // bytes that each stream is fetched ahead

uint64_t read(const std::byte* from, size_t bytes) {
  const size_t lines = bytes / 64;
  const size_t quarter = lines / kStreams * 64;
  Bytes seen[kStreams] = {zero_bytes(), zero_bytes(), zero_bytes(), zero_bytes()};
  for (size_t at = 0; at < quarter; at += 64) {
    for (size_t s = 0; s < kStreams; s++) {
      const std::byte* p = from + s * quarter + at;
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + kAhead));
      for (size_t i = 0; i < 64; i += kWidth) seen[s] = mix(seen[s], load_bytes(p + i));
    }
  }
  for (size_t at = kStreams * quarter; at < bytes; at += kWidth)
    seen[0] = mix(seen[0], load_bytes(from + at));
  return first_word(mix(mix(seen[0], seen[1]), mix(seen[2], seen[3])));
}

uint64_t int8(int64_t rounds) {
  Bytes sum[kChains];
  for (auto& s : sum) s = zero_bytes();
  Bytes w = word(0x01020304), a = word(0x7f010203);
  for (int64_t i = 0; i < rounds; i++) {
    // Opaque, so that nothing is computed once for all rounds.
    asm volatile("" : "+x"(w), "+x"(a));
    for (auto& s : sum) s = product(s, w, a);
  }
  for (int i = 1; i < kChains; i++) sum[0] = mix(sum[0], sum[i]);
  return first_word(sum[0]);
}

double f32(int64_t rounds) {
  F32 sum[kChains];
  for (auto& s : sum) s = number(0.0f);
  F32 a = number(1.0f), b = number(0.5f);
  for (int64_t i = 0; i < rounds; i++) {
    asm volatile("" : "+x"(a), "+x"(b));
    for (auto& s : sum) s = multiply_add(a, b, s);
  }
  for (int i = 1; i < kChains; i++) sum[0] = multiply_add(a, sum[i], sum[0]);
  return first_number(sum[0]);
}

Roofs roofs() {
  return {.read = read,
          .int8 = int8,
          .int8_ops = int64_t{2} * kWidth * kChains,
          .f32 = f32,
          .f32_flops = int64_t{2} * (kWidth / 4) * kChains};
}

}  // namespace
}  // namespace headrace::kernels

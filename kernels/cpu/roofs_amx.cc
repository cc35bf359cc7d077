#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/roofs.h"

namespace headrace::kernels {
namespace {

constexpr int kChains = 4;
constexpr int kSide = 16;
constexpr int64_t kDepth = 64;  // bytes of k that an instruction takes at most

// Four products of whole tiles a round; each result waits for its last one only.
uint64_t int8(int64_t rounds) {
  TileConfig config;
  for (int t = 0; t < 8; t++) config.set(t, kSide, kDepth);
  alignas(64) std::byte lines[kSide * kDepth];
  std::memset(lines, 1, sizeof lines);
  _tile_loadconfig(&config);
  _tile_loadd(4, lines, kDepth);
  _tile_loadd(5, lines, kDepth);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < rounds; i++) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  uint64_t sum = 0;
  const auto first = [&] {
    uint64_t word;
    std::memcpy(&word, lines, sizeof word);
    return word;
  };
  _tile_stored(0, lines, kDepth);
  sum += first();
  _tile_stored(1, lines, kDepth);
  sum += first();
  _tile_stored(2, lines, kDepth);
  sum += first();
  _tile_stored(3, lines, kDepth);
  sum += first();
  _tile_release();
  return sum;
}

}  // namespace

Roofs roofs_amx() {
  Roofs roofs = roofs_avx512();
  roofs.int8 = int8;
  roofs.int8_ops = 2 * kChains * kSide * kSide * kDepth;
  return roofs;
}

}  // namespace headrace::kernels

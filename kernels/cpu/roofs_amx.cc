#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/roofs.h"

namespace headrace::kernels {
namespace {

constexpr int kChains = 4;
constexpr int kSide = 16;  // rows of a tile, and numbers in one of its lines
constexpr int kLine = 64;
constexpr int64_t kDepth = 32;  // bytes of k: a unit of weights

// Four products a round, and the way of their results to memory: nothing else can read a tile, and
// each unit of 32 k has scales of its own.
uint64_t int8(int64_t rounds) {
  TileConfig config;
  for (int t = 0; t < kChains; t++) config.set(t, kSide, kLine);
  config.set(4, kSide, kDepth);
  config.set(5, kDepth / 4, kLine);
  alignas(64) std::byte lines[kChains][kSide * kLine];
  std::memset(lines, 1, sizeof lines);
  _tile_loadconfig(&config);
  _tile_loadd(4, lines[0], kDepth);
  _tile_loadd(5, lines[0], kLine);
  for (int64_t i = 0; i < rounds; i++) {
    _tile_zero(0);
    _tile_dpbssd(0, 4, 5);
    _tile_stored(0, lines[0], kLine);
    _tile_zero(1);
    _tile_dpbssd(1, 4, 5);
    _tile_stored(1, lines[1], kLine);
    _tile_zero(2);
    _tile_dpbssd(2, 4, 5);
    _tile_stored(2, lines[2], kLine);
    _tile_zero(3);
    _tile_dpbssd(3, 4, 5);
    _tile_stored(3, lines[3], kLine);
  }
  _tile_release();
  uint64_t sum = 0;
  for (const auto& line : lines) {
    uint64_t word;
    std::memcpy(&word, line, sizeof word);
    sum += word;
  }
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

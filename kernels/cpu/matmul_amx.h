#pragma once

#include <cstdint>

namespace headrace::kernels {

// The shapes of the eight tiles, as ldtilecfg reads them (Intel SDM, volume 1, 18.2).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int row_count, int bytes) {
    rows[tile] = static_cast<uint8_t>(row_count);
    column_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace headrace::kernels

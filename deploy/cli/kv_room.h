#pragma once

#include <cstdint>

namespace headrace::cli {

// What a model's KV takes of memory: its blocks, and the table of rotations for the positions that
// they have room for, or for the model's whole context if that is shorter (worker/model.h).
struct KvRoom {
  uint64_t block_bytes = 0;
  uint64_t block_tokens = 0;
  uint64_t context = 0;
  uint64_t rotated = 0;  // dims of a head that rotate

  uint64_t rope_bytes(uint64_t blocks) const;  // the table beside so many blocks
  uint64_t blocks(uint64_t memory) const;      // as many as go into it together with their table
};

}  // namespace headrace::cli

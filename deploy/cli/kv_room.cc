#include "deploy/cli/kv_room.h"

#include <algorithm>

#include "kernels/rope_table.h"

namespace headrace::cli {

uint64_t KvRoom::rope_bytes(uint64_t blocks) const {
  return kernels::rope_bytes(std::min(blocks * block_tokens, context), rotated);
}

// The table is the smaller of two: one that grows with the blocks, and that of the context. So is
// what it takes, and whatever fits beside either of them fits.
uint64_t KvRoom::blocks(uint64_t memory) const {
  const uint64_t grown =
      memory / std::max<uint64_t>(1, block_bytes + kernels::rope_bytes(block_tokens, rotated));
  const uint64_t whole = kernels::rope_bytes(context, rotated);
  return std::max(grown,
                  memory > whole ? (memory - whole) / std::max<uint64_t>(1, block_bytes) : 0);
}

}  // namespace headrace::cli

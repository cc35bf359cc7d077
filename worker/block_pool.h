#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "protocol/ids.h"
#include "protocol/messages.h"

namespace headrace::worker {

// What a block is held for; one block is in one state. Counted apart so that a leak shows.
enum class BlockState : uint8_t {
  kFree,
  kActive,       // the engine reads or writes it
  kCached,       // evictable prefix block
  kIncoming,     // granted to a sender, not yet verified: the engine must not read it
  kPinned,       // computed, held for a sender
  kQuarantined,  // a writer that could not be stopped may still touch it
};
constexpr size_t kBlockStates = 6;

// Which KV blocks are whose: reference counts and generations, no memory, no device. A block is
// named by (id, generation); the generation grows at each free, so a name kept too long is
// recognised (`current`). Freed blocks are handed out again last-in first-out: the memory is warm,
// and a write that comes too late hits a live block where tests see it. Deterministic. One strand.
class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  BlockCounts counts() const;

  // `n` blocks in `state` with one reference each; nothing when fewer are free.
  std::optional<std::vector<BlockRef>> take(uint32_t n, BlockState state);
  // One more holder of a block that is held already.
  void share(BlockRef ref);
  // One holder fewer; the last one frees the block. True if it was the last. Releasing a block
  // that is not held under this name is our own mistake (CHECK).
  bool release(BlockRef ref);
  uint32_t release(std::span<const BlockRef> refs);  // returns how many became free
  void set_state(std::span<const BlockRef> refs, BlockState state);

  // Whether the name is that of a held block. Takes anything, e.g. what a peer wrote.
  bool current(BlockRef ref) const;
  BlockState state(BlockRef ref) const;

 private:
  struct Block {
    uint32_t references = 0;
    Generation generation{};
    BlockState state = BlockState::kFree;
  };
  Block& held(BlockRef ref);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // the next one to go is the last
  uint32_t counts_[kBlockStates] = {};
};

}  // namespace headrace::worker

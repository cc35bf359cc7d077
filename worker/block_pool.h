#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "protocol/ids.h"
#include "protocol/messages.h"

namespace headrace::worker {

// What somebody holds a block for. One block may have several holders, of several kinds.
enum class Hold : uint8_t {
  kActive,       // the engine reads or writes it
  kPinned,       // computed, held for a sender
  kIncoming,     // granted to a sender, not yet verified: the engine must not read it
  kQuarantined,  // a writer that could not be stopped may still touch it
};
constexpr size_t kHolds = 4;

// Each block is counted in one state: that of the strictest of its holds, in the order
// quarantined > incoming > pinned > active; without any, cached where the keeper keeps it, else
// free. Counted apart so that a leak shows.
enum class BlockState : uint8_t { kFree, kCached, kActive, kPinned, kIncoming, kQuarantined };
constexpr size_t kBlockStates = 6;

// Which KV blocks are whose: holders and generations, no memory, no device. A block is named by
// (id, generation); the generation grows each time it becomes free, so a name kept too long is
// recognised (`current`). Freed blocks are handed out again last-in first-out: the memory is warm,
// and a write that comes too late hits a live block where tests see it. Deterministic. One strand.
//
// A block may be kept (PrefixCache does) beside or without holders: when its last holder goes it
// is cached instead of free, and take() may have it evicted.
class BlockPool {
 public:
  // Who keeps blocks. Told inside the pool's calls.
  class Keeper {
   public:
    virtual ~Keeper() = default;
    virtual void idle(BlockRef ref) = 0;     // a kept block lost its last holder
    virtual void revived(BlockRef ref) = 0;  // and has one again
    virtual void evict() = 0;                // has to drop() one kept block without holders
  };

  explicit BlockPool(uint32_t blocks);
  void set_keeper(Keeper* keeper) { keeper_ = keeper; }

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t available() const;  // free or cached: what take() can give
  BlockCounts counts() const;

  // `n` blocks with one holder each, cached ones evicted where free ones are too few; nothing when
  // even those do not suffice.
  std::optional<std::vector<BlockRef>> take(uint32_t n, Hold hold);
  // One more holder of a block that is held or cached.
  void hold(BlockRef ref, Hold hold);
  // One holder fewer. True if it was the last: the block is free or cached now. Releasing what is
  // not held in this way is our own mistake (CHECK).
  bool release(BlockRef ref, Hold hold);
  // The last of them first, so that of a chain the end is the least recently used. Returns how many
  // lost their last holder.
  uint32_t release(std::span<const BlockRef> refs, Hold hold);
  void change(std::span<const BlockRef> refs, Hold from, Hold to);

  void keep(BlockRef ref);  // held, not kept so far
  void drop(BlockRef ref);  // kept no more: free if nobody holds it

  // Whether the name is that of a held or cached block. Takes anything, e.g. what a peer wrote.
  bool current(BlockRef ref) const;
  BlockState state(BlockRef ref) const;
  uint32_t holders(BlockRef ref) const;

 private:
  struct Block {
    std::array<uint32_t, kHolds> holds{};
    Generation generation{};
    bool kept = false;
    BlockState state = BlockState::kFree;
    uint32_t holders() const { return holds[0] + holds[1] + holds[2] + holds[3]; }
  };
  Block& named(BlockRef ref);
  const Block& named(BlockRef ref) const;
  void settle(BlockRef ref);  // after a change of its holds or of `kept`

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // the next one to go is the last
  std::array<uint32_t, kBlockStates> counts_{};
  Keeper* keeper_ = nullptr;
};

}  // namespace headrace::worker

#include "worker/block_pool.h"

#include "protocol/check.h"

namespace headrace::worker {
namespace {

BlockState state_of(Hold hold) {
  switch (hold) {
    case Hold::kActive:
      return BlockState::kActive;
    case Hold::kPinned:
      return BlockState::kPinned;
    case Hold::kIncoming:
      return BlockState::kIncoming;
    case Hold::kQuarantined:
      return BlockState::kQuarantined;
  }
  return BlockState::kFree;
}

}  // namespace

BlockPool::BlockPool(uint32_t blocks) : blocks_(blocks) {
  free_.reserve(blocks);
  for (uint32_t i = blocks; i > 0; --i) free_.push_back(BlockId{i - 1});
  counts_[raw(BlockState::kFree)] = blocks;
}

uint32_t BlockPool::available() const { return free() + counts_[raw(BlockState::kCached)]; }

BlockCounts BlockPool::counts() const {
  BlockCounts c;
  c.total = total();
  c.free = counts_[raw(BlockState::kFree)];
  c.active = counts_[raw(BlockState::kActive)];
  c.cached = counts_[raw(BlockState::kCached)];
  c.incoming = counts_[raw(BlockState::kIncoming)];
  c.pinned = counts_[raw(BlockState::kPinned)];
  c.quarantined = counts_[raw(BlockState::kQuarantined)];
  return c;
}

std::optional<std::vector<BlockRef>> BlockPool::take(uint32_t n, Hold hold) {
  if (n > available()) return std::nullopt;
  while (free_.size() < n) {
    const size_t before = free_.size();
    keeper_->evict();
    CHECK(free_.size() > before);
  }
  std::vector<BlockRef> taken;
  taken.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    const BlockId id = free_.back();
    free_.pop_back();
    Block& block = blocks_[raw(id)];
    const BlockRef ref{id, block.generation};
    block.holds[raw(hold)] = 1;
    --counts_[raw(BlockState::kFree)];
    block.state = state_of(hold);
    ++counts_[raw(block.state)];
    taken.push_back(ref);
  }
  return taken;
}

void BlockPool::hold(BlockRef ref, Hold hold) {
  Block& block = named(ref);
  const bool cached = block.state == BlockState::kCached;
  ++block.holds[raw(hold)];
  settle(ref);
  if (cached) keeper_->revived(ref);
}

bool BlockPool::release(BlockRef ref, Hold hold) {
  Block& block = named(ref);
  CHECK(block.holds[raw(hold)] > 0);
  --block.holds[raw(hold)];
  const bool last = block.holders() == 0;
  settle(ref);
  if (last && block.kept) keeper_->idle(ref);
  return last;
}

uint32_t BlockPool::release(std::span<const BlockRef> refs, Hold hold) {
  uint32_t gone = 0;
  for (auto ref = refs.rbegin(); ref != refs.rend(); ++ref) gone += release(*ref, hold) ? 1 : 0;
  return gone;
}

void BlockPool::change(std::span<const BlockRef> refs, Hold from, Hold to) {
  for (const BlockRef& ref : refs) {
    Block& block = named(ref);
    CHECK(block.holds[raw(from)] > 0);
    --block.holds[raw(from)];
    ++block.holds[raw(to)];
    settle(ref);
  }
}

void BlockPool::keep(BlockRef ref) {
  Block& block = named(ref);
  CHECK(keeper_ != nullptr && !block.kept && block.holders() > 0);
  block.kept = true;
}

void BlockPool::drop(BlockRef ref) {
  Block& block = named(ref);
  CHECK(block.kept);
  block.kept = false;
  settle(ref);
}

void BlockPool::settle(BlockRef ref) {
  Block& block = blocks_[raw(ref.block)];
  BlockState now = block.kept ? BlockState::kCached : BlockState::kFree;
  for (size_t i = 0; i < kHolds; ++i) {  // in ascending order of strictness
    if (block.holds[i] > 0) now = state_of(Hold{static_cast<uint8_t>(i)});
  }
  if (now == block.state) return;
  --counts_[raw(block.state)];
  ++counts_[raw(now)];
  block.state = now;
  if (now != BlockState::kFree) return;
  block.generation = Generation{raw(block.generation) + 1};
  free_.push_back(ref.block);
}

bool BlockPool::current(BlockRef ref) const {
  if (raw(ref.block) >= blocks_.size()) return false;
  const Block& block = blocks_[raw(ref.block)];
  return block.state != BlockState::kFree && block.generation == ref.generation;
}

BlockState BlockPool::state(BlockRef ref) const { return named(ref).state; }

uint32_t BlockPool::holders(BlockRef ref) const { return named(ref).holders(); }

BlockPool::Block& BlockPool::named(BlockRef ref) {
  CHECK(current(ref));
  return blocks_[raw(ref.block)];
}

const BlockPool::Block& BlockPool::named(BlockRef ref) const {
  CHECK(current(ref));
  return blocks_[raw(ref.block)];
}

}  // namespace headrace::worker

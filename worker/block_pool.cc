#include "worker/block_pool.h"

#include "protocol/check.h"

namespace headrace::worker {

BlockPool::BlockPool(uint32_t blocks) : blocks_(blocks) {
  free_.reserve(blocks);
  for (uint32_t i = blocks; i > 0; --i) free_.push_back(BlockId{i - 1});
  counts_[raw(BlockState::kFree)] = blocks;
}

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

std::optional<std::vector<BlockRef>> BlockPool::take(uint32_t n, BlockState state) {
  CHECK(state != BlockState::kFree);
  if (n > free_.size()) return std::nullopt;
  std::vector<BlockRef> taken;
  taken.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    const BlockId id = free_.back();
    free_.pop_back();
    Block& block = blocks_[raw(id)];
    block.references = 1;
    block.state = state;
    taken.push_back({id, block.generation});
  }
  counts_[raw(BlockState::kFree)] -= n;
  counts_[raw(state)] += n;
  return taken;
}

void BlockPool::share(BlockRef ref) { ++held(ref).references; }

bool BlockPool::release(BlockRef ref) {
  Block& block = held(ref);
  if (--block.references > 0) return false;
  --counts_[raw(block.state)];
  ++counts_[raw(BlockState::kFree)];
  block.state = BlockState::kFree;
  block.generation = Generation{raw(block.generation) + 1};
  free_.push_back(ref.block);
  return true;
}

uint32_t BlockPool::release(std::span<const BlockRef> refs) {
  uint32_t freed = 0;
  for (const BlockRef& ref : refs) freed += release(ref) ? 1 : 0;
  return freed;
}

void BlockPool::set_state(std::span<const BlockRef> refs, BlockState state) {
  CHECK(state != BlockState::kFree);
  for (const BlockRef& ref : refs) {
    Block& block = held(ref);
    --counts_[raw(block.state)];
    ++counts_[raw(state)];
    block.state = state;
  }
}

bool BlockPool::current(BlockRef ref) const {
  if (raw(ref.block) >= blocks_.size()) return false;
  const Block& block = blocks_[raw(ref.block)];
  return block.references > 0 && block.generation == ref.generation;
}

BlockState BlockPool::state(BlockRef ref) const {
  CHECK(current(ref));
  return blocks_[raw(ref.block)].state;
}

BlockPool::Block& BlockPool::held(BlockRef ref) {
  CHECK(current(ref));
  return blocks_[raw(ref.block)];
}

}  // namespace headrace::worker

#include "worker/block_pool.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

uint32_t sum(const BlockCounts& c) {
  return c.free + c.active + c.cached + c.incoming + c.pinned + c.quarantined;
}

// Keeps what it is told to, evicts the oldest.
struct Shelf final : BlockPool::Keeper {
  explicit Shelf(BlockPool& p) : pool(p) { pool.set_keeper(this); }
  void idle(BlockRef ref) override { order.push_back(ref); }
  void revived(BlockRef ref) override { std::erase(order, ref); }
  void evict() override {
    const BlockRef ref = order.front();
    order.erase(order.begin());
    evicted.push_back(ref);
    pool.drop(ref);
  }
  BlockPool& pool;
  std::vector<BlockRef> order;
  std::vector<BlockRef> evicted;
};

TEST_CASE("blocks are handed out once, refused by value, and come back last in first out") {
  BlockPool pool(4);
  const auto a = pool.take(3, Hold::kActive);
  REQUIRE(a.has_value());
  CHECK(std::set<uint32_t>{raw((*a)[0].block), raw((*a)[1].block), raw((*a)[2].block)}.size() == 3);
  CHECK(!pool.take(2, Hold::kActive).has_value());
  CHECK(pool.free() == 1);
  CHECK(pool.take(0, Hold::kActive)->empty());
  CHECK(pool.release((*a)[1], Hold::kActive));
  const auto b = pool.take(1, Hold::kIncoming);
  CHECK((*b)[0].block == (*a)[1].block);
}

TEST_CASE("a freed block has a new generation and its old name is dead") {
  BlockPool pool(1);
  const BlockRef first = pool.take(1, Hold::kActive)->front();
  CHECK(pool.current(first));
  pool.release(first, Hold::kActive);
  CHECK(!pool.current(first));
  const BlockRef second = pool.take(1, Hold::kActive)->front();
  CHECK(second.block == first.block);
  CHECK(raw(second.generation) == raw(first.generation) + 1);
  CHECK(!pool.current(first));
  CHECK(pool.current(second));
  CHECK(!pool.current({BlockId{1}, Generation{0}}));
  CHECK(!pool.current({BlockId{0xFFFFFFFF}, second.generation}));
}

TEST_CASE("the last holder frees, of whatever kind it is") {
  BlockPool pool(2);
  const BlockRef ref = pool.take(1, Hold::kActive)->front();
  pool.hold(ref, Hold::kPinned);
  CHECK(!pool.release(ref, Hold::kActive));
  CHECK(pool.current(ref));
  CHECK(pool.release(ref, Hold::kPinned));
  CHECK(pool.free() == 2);
}

TEST_CASE("the strictest hold decides where a block is counted") {
  BlockPool pool(1);
  const Hold strict[] = {Hold::kActive, Hold::kPinned, Hold::kIncoming, Hold::kQuarantined};
  const BlockState states[] = {BlockState::kActive, BlockState::kPinned, BlockState::kIncoming,
                               BlockState::kQuarantined};
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < 4; ++b) {
      const BlockRef ref = pool.take(1, strict[a])->front();
      pool.hold(ref, strict[b]);
      CHECK(pool.state(ref) == states[std::max(a, b)]);
      CHECK(pool.holders(ref) == 2);
      pool.change({&ref, 1}, strict[a], Hold::kActive);
      CHECK(pool.state(ref) == states[b]);
      pool.release(ref, strict[b]);
      CHECK(pool.state(ref) == BlockState::kActive);
      pool.release(ref, Hold::kActive);
    }
  }
}

TEST_CASE("what is kept is cached without holders, revived by one, evicted for who takes") {
  BlockPool pool(3);
  Shelf shelf(pool);
  const auto refs = *pool.take(3, Hold::kActive);
  for (const BlockRef& ref : refs) pool.keep(ref);
  CHECK(pool.counts().active == 3);
  CHECK(pool.release(refs, Hold::kActive) == 3);
  CHECK(pool.counts().cached == 3);
  CHECK(pool.available() == 3);
  CHECK(pool.free() == 0);
  CHECK(pool.current(refs[0]));  // same name: its bytes are what they were
  pool.hold(refs[2], Hold::kActive);
  CHECK(pool.counts().active == 1);
  CHECK(!pool.take(3, Hold::kActive).has_value());
  CHECK(shelf.evicted.empty());  // in vain, so nothing was evicted
  const auto taken = *pool.take(1, Hold::kIncoming);
  REQUIRE(shelf.evicted.size() == 1);
  CHECK(shelf.evicted[0] == refs[1]);  // the last of a chain is released first
  CHECK(!pool.current(refs[1]));
  CHECK(taken[0].block == refs[1].block);
  CHECK(taken[0].generation != refs[1].generation);
  pool.drop(refs[2]);  // held: it only is not kept any more
  CHECK(pool.counts().active == 1);
  CHECK(pool.release(refs[2], Hold::kActive));
  CHECK(pool.counts().free == 1);
  pool.drop(refs[0]);
  CHECK(pool.counts().free == 2);
}

TEST_CASE("states are counted apart and always sum to the total") {
  BlockPool pool(8);
  Shelf shelf(pool);
  SeededRandom random(3);
  std::vector<std::pair<BlockRef, Hold>> holds;
  std::set<uint32_t> kept;
  const auto held = [&] {
    std::set<uint32_t> ids;
    for (const auto& [ref, hold] : holds) ids.insert(raw(ref.block));
    return ids;
  };
  for (int i = 0; i < 20000; ++i) {
    const auto hold = Hold{static_cast<uint8_t>(random.next() % 4)};
    const size_t at = holds.empty() ? 0 : random.next() % holds.size();
    switch (random.next() % 5) {
      case 0:
        if (auto got = pool.take(1 + random.next() % 3, hold)) {
          for (const BlockRef& ref : *got) holds.emplace_back(ref, hold);
        }
        for (const BlockRef& ref : std::exchange(shelf.evicted, {})) kept.erase(raw(ref.block));
        break;
      case 1:
        if (holds.empty()) break;
        pool.release(holds[at].first, holds[at].second);
        holds.erase(holds.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 2:
        if (holds.empty()) break;
        pool.change({&holds[at].first, 1}, holds[at].second, hold);
        holds[at].second = hold;
        break;
      case 3:
        if (holds.empty() || !kept.insert(raw(holds[at].first.block)).second) break;
        pool.keep(holds[at].first);
        break;
      case 4:
        if (shelf.order.empty()) break;
        holds.emplace_back(shelf.order[0], hold);
        pool.hold(shelf.order[0], hold);
        break;
    }
    const BlockCounts c = pool.counts();
    REQUIRE(sum(c) == c.total);
    REQUIRE(c.total - c.free - c.cached == held().size());
    REQUIRE(c.cached == shelf.order.size());
    std::map<uint32_t, Hold> strictest;
    for (const auto& [ref, h] : holds) {
      auto& s = strictest.emplace(raw(ref.block), h).first->second;
      s = std::max(s, h);
    }
    uint32_t quarantined = 0;
    for (const auto& [id, h] : strictest) quarantined += h == Hold::kQuarantined ? 1 : 0;
    REQUIRE(c.quarantined == quarantined);
  }
}

}  // namespace
}  // namespace headrace::worker

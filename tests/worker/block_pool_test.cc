#include "worker/block_pool.h"

#include <doctest/doctest.h>

#include <set>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

uint32_t sum(const BlockCounts& c) {
  return c.free + c.active + c.cached + c.incoming + c.pinned + c.quarantined;
}

TEST_CASE("blocks are handed out once, refused by value, and come back last in first out") {
  BlockPool pool(4);
  const auto a = pool.take(3, BlockState::kActive);
  REQUIRE(a.has_value());
  CHECK(std::set<uint32_t>{raw((*a)[0].block), raw((*a)[1].block), raw((*a)[2].block)}.size() == 3);
  CHECK(!pool.take(2, BlockState::kActive).has_value());
  CHECK(pool.free() == 1);
  CHECK(pool.take(0, BlockState::kActive)->empty());
  CHECK(pool.release((*a)[1]));
  const auto b = pool.take(1, BlockState::kIncoming);
  CHECK((*b)[0].block == (*a)[1].block);
}

TEST_CASE("a freed block has a new generation and its old name is dead") {
  BlockPool pool(1);
  const BlockRef first = pool.take(1, BlockState::kActive)->front();
  CHECK(pool.current(first));
  pool.release(first);
  CHECK(!pool.current(first));
  const BlockRef second = pool.take(1, BlockState::kActive)->front();
  CHECK(second.block == first.block);
  CHECK(raw(second.generation) == raw(first.generation) + 1);
  CHECK(!pool.current(first));
  CHECK(pool.current(second));
  CHECK(!pool.current({BlockId{1}, Generation{0}}));
  CHECK(!pool.current({BlockId{0xFFFFFFFF}, second.generation}));
}

TEST_CASE("the last holder frees") {
  BlockPool pool(2);
  const BlockRef ref = pool.take(1, BlockState::kActive)->front();
  pool.share(ref);
  CHECK(!pool.release(ref));
  CHECK(pool.current(ref));
  CHECK(pool.release(ref));
  CHECK(pool.free() == 2);
}

TEST_CASE("states are counted apart and always sum to the total") {
  BlockPool pool(8);
  SeededRandom random(3);
  std::vector<BlockRef> held;
  for (int i = 0; i < 2000; ++i) {
    const auto state = BlockState{static_cast<uint8_t>(1 + random.next() % 5)};
    if (random.next() % 2 == 0) {
      if (auto got = pool.take(1 + random.next() % 3, state)) {
        held.insert(held.end(), got->begin(), got->end());
      }
    } else if (!held.empty()) {
      const size_t at = random.next() % held.size();
      if (random.next() % 2 == 0) {
        pool.set_state({&held[at], 1}, state);
        CHECK(pool.state(held[at]) == state);
      } else {
        pool.release(held[at]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(at));
      }
    }
    const BlockCounts c = pool.counts();
    REQUIRE(sum(c) == c.total);
    REQUIRE(c.total - c.free == held.size());
  }
  const uint32_t left = static_cast<uint32_t>(held.size());
  CHECK(pool.release(held) == left);
  CHECK(pool.counts().free == 8);
}

}  // namespace
}  // namespace headrace::worker

#include "coordinator/prefix_index.h"

#include <doctest/doctest.h>

#include <vector>

namespace headrace::coordinator {
namespace {

using Kind = PrefixEvent::Kind;
constexpr WorkerId kOne{1}, kTwo{2};

std::vector<PrefixEvent> added(std::initializer_list<uint64_t> hashes) {
  std::vector<PrefixEvent> out;
  for (const uint64_t h : hashes) out.push_back({Kind::kAdded, h});
  return out;
}

}  // namespace

TEST_CASE("events in order make a set; the match ends at the first block that is missing") {
  PrefixIndex index;
  index.join(kOne, 100);
  index.join(kTwo, 100);
  CHECK(index.take(kOne, 0, added({10, 20, 40})));
  const std::vector<uint64_t> chain = {10, 20, 30, 40};
  CHECK(index.match(kOne, chain) == 2);
  CHECK(index.match(kTwo, chain) == 0);
  CHECK(index.match(WorkerId{9}, chain) == 0);
  CHECK(index.seen(kOne) == 3);
  CHECK(index.take(kOne, 3, std::vector<PrefixEvent>{{Kind::kEvicted, 10}, {Kind::kAdded, 30}}));
  CHECK(index.match(kOne, chain) == 0);
  CHECK(index.take(kOne, 5, added({10})));
  CHECK(index.match(kOne, chain) == 4);
}

TEST_CASE("repeats are skipped, gaps refused, a reset bridges one") {
  PrefixIndex index;
  index.join(kOne, 100);
  CHECK(index.take(kOne, 0, added({1, 2})));
  CHECK(index.take(kOne, 0, added({7, 8})));  // a repeat, whatever it says
  CHECK(index.take(kOne, 1, added({2, 3})));  // overlaps
  CHECK(index.blocks(kOne) == 3);
  CHECK(index.seen(kOne) == 3);
  CHECK_FALSE(index.take(kOne, 5, added({6})));  // 3 and 4 are missing
  CHECK(index.seen(kOne) == 3);
  CHECK(index.blocks(kOne) == 3);
  CHECK(index.take(kOne, 3, added({4, 5, 6})));
  CHECK(index.take(
      kOne, 50,
      std::vector<PrefixEvent>{{Kind::kAdded, 9}, {Kind::kReset, 0}, {Kind::kAdded, 77}}));
  CHECK(index.seen(kOne) == 53);
  CHECK(index.blocks(kOne) == 1);
  CHECK(index.match(kOne, std::vector<uint64_t>{77}) == 1);
}

TEST_CASE("a worker cannot fill the memory, nor overflow a number") {
  PrefixIndex index;
  index.join(kOne, 4);
  CHECK(index.take(kOne, 0, added({1, 2, 3, 4, 5, 6})));
  CHECK(index.blocks(kOne) == 4);
  CHECK_FALSE(index.take(kOne, UINT64_MAX, added({1, 2})));
  CHECK(index.take(kOne, UINT64_MAX, {}));
  CHECK(index.seen(kOne) == 6);
  index.join(kOne, 4);  // a new life begins with nothing
  CHECK(index.blocks(kOne) == 0);
  index.forget(kOne);
  CHECK(index.take(kOne, 0, added({1})));
  CHECK(index.blocks(kOne) == 0);
}

TEST_CASE("however many blocks a worker says it has, so many are remembered and no more") {
  PrefixIndex index;
  index.join(kOne, UINT32_MAX);
  std::vector<PrefixEvent> events(PrefixIndex::kBlocksMax + 10, {Kind::kAdded, 0});
  for (size_t i = 0; i < events.size(); ++i) events[i].hash = i;
  CHECK(index.take(kOne, 0, events));
  CHECK(index.blocks(kOne) == PrefixIndex::kBlocksMax);
}

}  // namespace headrace::coordinator

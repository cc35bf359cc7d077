#include "protocol/random.h"

#include <doctest/doctest.h>

#include <set>

namespace headrace {
namespace {

TEST_CASE("SplitMix64 gives the published sequence") {
  // First outputs for the seed 1234567, as in Vigna's reference implementation.
  SeededRandom random(1234567);
  CHECK(random.next() == 6457827717110365317ull);
  CHECK(random.next() == 3203168211198807973ull);
  CHECK(random.next() == 9817491932198370423ull);
}

TEST_CASE("ids differ and are never zero") {
  OsRandom os;
  SeededRandom seeded(0);
  std::set<TransferId> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto a = os.mint<TransferId>();
    CHECK(bool(a));
    CHECK(seen.insert(a).second);
    CHECK(seen.insert(seeded.mint<TransferId>()).second);
  }
}

}  // namespace
}  // namespace headrace

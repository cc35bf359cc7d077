#include "coordinator/pair_health.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {

TEST_CASE("a pair that failed is left alone, longer each time, until it works") {
  PairHealth health;
  const WorkerPair pair{WorkerId{1}, WorkerId{2}};
  Instant now{100s};
  CHECK(health.sick(now).empty());
  Duration wait = kPairBackoffMin;
  for (int i = 0; i < 10; ++i) {
    health.failed(pair, now);
    CHECK(health.sick(now + wait - 1ms) == std::vector<WorkerPair>{pair});
    CHECK(health.sick(now + wait).empty());
    now += wait;
    wait = std::min<Duration>(wait * 2, kPairBackoffMax);
  }
  CHECK(wait == kPairBackoffMax);
  health.worked(pair);
  health.failed(pair, now);
  CHECK(health.sick(now + kPairBackoffMin).empty());
  health.forget(WorkerId{2});
  CHECK(health.size() == 0);
}

TEST_CASE("the table of pairs is bounded") {
  PairHealth health;
  for (uint64_t i = 0; i < kPairsMax + 10; ++i)
    health.failed({WorkerId{i}, WorkerId{i + 1}}, Instant{Duration{static_cast<int64_t>(i)}});
  CHECK(health.size() == kPairsMax);
}

}  // namespace headrace::coordinator

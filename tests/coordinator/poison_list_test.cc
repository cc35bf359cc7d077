#include "coordinator/poison_list.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {

TEST_CASE("deaths count for a while, the table of them is bounded") {
  PoisonList list;
  Instant now{100s};
  list.worker_died(now);
  list.worker_died(now + 10s);
  CHECK(list.deaths(now + 10s) == 2);
  CHECK(list.deaths(now + kPoisonWindow + 1s) == 1);
  CHECK(list.deaths(now + kPoisonWindow + 11s) == 0);
  for (int i = 0; i < 1000; ++i) list.worker_died(now + 20s);
  CHECK(list.deaths(now + 20s) < 100);
}

TEST_CASE("a prompt is barred for its time; the oldest makes room") {
  PoisonList list;
  const Instant now{100s};
  const std::vector<Token> one = {1, 2}, two = {1, 3};
  list.bar(prompt_digest(one), now);
  CHECK(list.barred(prompt_digest(one), now + kBarredFor - 1s));
  CHECK_FALSE(list.barred(prompt_digest(two), now));
  CHECK_FALSE(list.barred(prompt_digest(one), now + kBarredFor));
  list.sweep(now + kBarredFor);
  CHECK(list.size() == 0);
  list.bar(prompt_digest(one), now);
  for (uint64_t i = 1; i <= kBarredMax; ++i) list.bar({7, i}, now + 1s);
  CHECK(list.size() == kBarredMax);
  CHECK_FALSE(list.barred(prompt_digest(one), now + 1s));
}

}  // namespace headrace::coordinator

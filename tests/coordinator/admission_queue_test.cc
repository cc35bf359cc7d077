#include "coordinator/admission_queue.h"

#include <doctest/doctest.h>

#include <string>

#include "coordinator/request_record.h"

namespace headrace::coordinator {
namespace {

struct Row {
  void come(Rank rank) { queue.line(rank).push_back(&record); }
  // Who goes, if all have room: k or s each.
  std::string go(int count) {
    std::string out;
    while (count-- > 0 && queue.size() > 0) {
      Rank rank = queue.turn();
      if (queue.line(rank).empty()) rank = other(rank);
      queue.line(rank).pop_front();
      queue.placed(rank);
      out += rank == Rank::kKnown ? 'k' : 's';
    }
    return out;
  }
  RequestRecord record;
  AdmissionQueue queue;
};

}  // namespace

TEST_CASE("known clients go first, and strangers get every fourth turn") {
  Row r;
  for (int i = 0; i < 3; ++i) r.come(Rank::kStranger);
  for (int i = 0; i < 12; ++i) r.come(Rank::kKnown);
  CHECK(r.go(15) == "kkkskkkskkkskkk");
}

TEST_CASE("only who passed a stranger is counted") {
  Row r;
  for (int i = 0; i < 10; ++i) r.come(Rank::kKnown);
  CHECK(r.go(6) == "kkkkkk");
  r.come(Rank::kStranger);
  CHECK(r.go(5) == "kkksk");
}

TEST_CASE("a line alone goes in its order; each has a limit of its own") {
  Row r;
  for (size_t i = 0; i < kQueueMax; ++i) r.come(Rank::kStranger);
  CHECK(r.queue.full(Rank::kStranger));
  CHECK_FALSE(r.queue.full(Rank::kKnown));
  CHECK(r.queue.size() == kQueueMax);
  CHECK(r.go(4) == "ssss");
  RequestRecord one;
  r.queue.line(Rank::kKnown).push_back(&one);
  r.queue.remove(Rank::kKnown, &one);
  CHECK(r.queue.line(Rank::kKnown).empty());
}

}  // namespace headrace::coordinator

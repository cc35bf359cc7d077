// What peers are charged with: protocol/peer_tab.h.
#include "protocol/peer_tab.h"

#include <doctest/doctest.h>

namespace headrace {
using namespace std::chrono_literals;

TEST_CASE("charges come back, and what is left goes with the tab") {
  auto total = std::make_shared<PeersTotal>();
  {
    PeerTab one(total, 10), two(total, 10);
    one.charge(100);
    one.credit(40);
    CHECK(one.bytes() == 70);
    CHECK(total->bytes == 80);
    two.charge(5);
    two.close();
    two.charge(1000);  // what dies late
    two.credit(1000);
    CHECK(total->bytes == 70);
  }
  CHECK(total->bytes == 0);
}

TEST_CASE("an answer counts from its making until it is finished") {
  auto total = std::make_shared<PeersTotal>();
  PeerTab tab(total, 0);
  int eased = 0;
  tab.eased = [&] { ++eased; };
  tab.made(100);
  CHECK(tab.answers() == 100);
  tab.wrote(120, true);
  CHECK(tab.answers() == 120);
  CHECK(tab.bytes() == 120);
  tab.finished(120);
  CHECK(tab.answers() == 0);
  CHECK(tab.bytes() == 0);
  CHECK(eased >= 1);
  tab.made(50);
  tab.wrote(60, false);  // finished before
  CHECK(tab.bytes() == 0);
  tab.made(50);
  tab.nothing_queued();
  CHECK(tab.answers() == 0);
  CHECK(tab.bytes() == 0);
}

TEST_CASE("beyond the limit it is said, at each charge") {
  auto total = std::make_shared<PeersTotal>();
  total->limit = 100;
  int said = 0;
  total->over = [&] { ++said; };
  PeerTab one(total, 50), two(total, 50);
  CHECK(said == 0);
  one.charge(1);
  two.charge(1);
  CHECK(said == 2);
}

TEST_CASE("who asks much waits for a turn once the burst is used") {
  PeersTotal total;
  for (int64_t i = 0; i < PeersTotal::kQuestionsAtOnce; ++i) CHECK(total.wait_for_turn(1s) == 0s);
  CHECK(total.wait_for_turn(1s) == PeersTotal::kQuestionEvery);
  CHECK(total.wait_for_turn(1s) == 2 * PeersTotal::kQuestionEvery);
  CHECK(total.wait_for_turn(10s) == 0s);
}

}  // namespace headrace

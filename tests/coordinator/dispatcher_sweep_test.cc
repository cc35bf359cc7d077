// Lost messages, deaths, what is told again: coordinator/dispatcher_sweep.cc.
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

constexpr Duration kTwoBeats = 300ms;  // Bench beats each 100 ms

}  // namespace

TEST_CASE("a Prepare that was lost is sent again, the same; then the attempt has failed") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("AB", 1, 10);
  b.forgetful = {1};
  const auto first = *b.last<to_worker::Prepare>(1);
  b.live(kTwoBeats);
  REQUIRE(b.count<to_worker::Prepare>(1) == 2);
  auto again = *b.last<to_worker::Prepare>(1);
  CHECK(again.deadline < first.deadline);
  again.deadline = first.deadline;
  CHECK(again == first);
  // It has it now and speaks: fine.
  b.forgetful = {};
  b.tokens(1, 0, "x");
  b.live(2s);
  CHECK(b.count<to_worker::Prepare>(1) == 2);
  CHECK(b.status().totals.attempts == 1);
  // It forgets it for good: told again so often, then replayed elsewhere from the log.
  b.forgetful = {1};
  b.live(2s);
  CHECK(b.count<to_worker::Prepare>(1) == 2 + kRepeatsMax);
  CHECK(b.last<to_worker::Prepare>(1)->generated == 0);  // of one attempt, all are equal
  REQUIRE(b.last<to_worker::Prepare>(2));
  CHECK(b.last<to_worker::Prepare>(2)->generated == 1);
  CHECK_FALSE(client->ended);
}

TEST_CASE("a last word that was lost is asked for again") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1, 10);
  b.tokens(1, 0, "x");
  b.forgetful = {1};  // it has ended; its last run did not arrive
  b.live(kTwoBeats);
  CHECK(b.count<to_worker::Prepare>(1) == 2);
  b.tokens(1, 1, "y", Finish::kStop);  // the repeat
  CHECK(client->text == "xy.");
  CHECK(b.status().totals.attempts == 1);
}

TEST_CASE("a Start, a PrefillDone that was lost") {
  Bench b({Term{1}, PdMode::kAlways});
  b.join(Role::kPrefill, 1);
  b.join(Role::kDecode, 2);
  auto client = b.submit("ABC", 1);
  b.grant(2);
  b.forgetful = {1};
  const auto first = *b.last<to_worker::Start>(1);
  b.live(kTwoBeats);
  REQUIRE(b.count<to_worker::Start>(1) == 2);
  CHECK(b.last<to_worker::Start>(1)->grant == first.grant);
  CHECK(b.last<to_worker::Start>(1)->tokens == first.tokens);
  CHECK(b.count<to_worker::Prepare>(2) == 1);
  b.prefill_done(1);  // its part is over: it need not name it any more
  b.live(1s);
  CHECK(b.count<to_worker::Start>(1) == 2);
  b.owned(2);
  b.tokens(2, 0, "x", Finish::kStop);
  CHECK(client->text == "x.");
}

TEST_CASE("a grant that does not come is asked for once more, within its time") {
  Bench b({Term{1}, PdMode::kAlways});
  b.join(Role::kPrefill, 1);
  b.join(Role::kDecode, 2);
  b.submit("ABC", 1);
  b.live(kGrantWithin / 2 + 200ms);
  CHECK(b.count<to_worker::Prepare>(2) == 2);
  b.grant(2);
  CHECK(b.count<to_worker::Start>(1) == 1);
  CHECK(b.status().totals.attempts == 1);
}

TEST_CASE("a Cancel is repeated until it is answered, and given up at last") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.submit("AB", 1);
  const auto p = *b.last<to_worker::Prepare>(1);
  b.tell(Abandon{{1, 1}});
  b.live(5s);
  const int told = b.count<to_worker::Cancel>(1);
  CHECK(told >= 4);
  CHECK(b.last<to_worker::Cancel>(1)->attempt == p.attempt);
  b.from(1, to_coordinator::Quiesced{p.transfer, p.attempt, 1});
  b.live(5s);
  CHECK(b.count<to_worker::Cancel>(1) == told);
  b.submit("AB", 2);
  b.tell(Abandon{{2, 2}});
  b.idle(kClosingWithin + 1s);
  b.idle(5s);
  b.live(2s);
  CHECK(b.count<to_worker::Cancel>(1) == 0);
  CHECK(b.status().totals.closing_lost == 1);
}

TEST_CASE(
    "a request that two workers died of is ended and its prompt barred, its neighbour is not") {
  Bench b;
  for (uint64_t w = 1; w <= 4; ++w) b.join(Role::kBoth, w);
  const auto at = [&](uint64_t id) -> uint64_t {
    for (uint64_t w = 1; w <= 4; ++w)
      if (b.incarnations.contains(w))
        for (const TransferId& t : b.holds(w))
          for (const ToWorker& m : b.mesh->sent[w])
            if (const auto* p = std::get_if<to_worker::Prepare>(&m); p && p->transfer == t)
              if (p->request == RequestId{id, id}) return w;
    return 0;
  };
  auto killer = b.submit("KILL", 1);
  std::vector<std::shared_ptr<Client>> others;
  for (uint64_t id = 2; id <= 8; ++id) others.push_back(b.submit("live", id));
  const uint64_t first = at(1);
  b.lose(first);
  b.live(200ms);
  const uint64_t second = at(1);
  REQUIRE(second != 0);
  b.lose(second);
  REQUIRE(killer->ended);
  CHECK(killer->ended->status.code == Errc::kInternal);
  CHECK(killer->ended->status.message.find("2 workers died") != std::string::npos);
  CHECK(b.status().totals.poisoned == 1);
  CHECK(at(1) == 0);
  // All others go on.
  for (int round = 0; round < 20; ++round) {
    for (uint64_t id = 2; id <= 8; ++id) {
      const uint64_t w = at(id);
      if (w == 0 || others[id - 2]->ended) continue;
      const to_worker::Prepare* mine = nullptr;
      for (const ToWorker& m : b.mesh->sent[w])
        if (const auto* p = std::get_if<to_worker::Prepare>(&m);
            p && p->request == RequestId{id, id})
          mine = p;
      to_coordinator::TokenRun run;
      run.transfer = mine->transfer;
      run.attempt = mine->attempt;
      run.ids = {'x'};
      run.finish = Finish::kStop;
      b.from(w, to_coordinator::Tokens{{run}});
    }
    b.live(100ms);
  }
  for (const auto& client : others) {
    REQUIRE(client->ended);
    CHECK(client->text == "x.");
  }
  auto again = b.submit("KILL", 20);
  REQUIRE(again->ended);
  CHECK(again->ended->status.code == Errc::kInvalid);
  CHECK_FALSE(b.submit("KILM", 21)->ended);
  b.tell(Abandon{{21, 21}});
  b.idle(kBarredFor);
  CHECK_FALSE(b.submit("KILL", 22)->ended);
}

TEST_CASE("deaths with new tokens in between, by silence, or among many deaths prove nothing") {
  SUBCASE("a new token") {
    Bench b;
    for (uint64_t w = 1; w <= 3; ++w) b.join(Role::kBoth, w);
    auto client = b.submit("AB", 1);
    b.lose(1);
    b.tokens(2, 0, "x");
    b.tokens(2, 1, "y");
    b.lose(2);
    b.live(200ms);  // the second failure waits a little
    REQUIRE(b.last<to_worker::Prepare>(3));
    b.tokens(3, 2, "z", Finish::kStop);
    CHECK(client->text == "xyz.");
  }
  SUBCASE("silence") {
    Bench b;
    for (uint64_t w = 1; w <= 3; ++w) b.join(Role::kBoth, w);
    auto client = b.submit("AB", 1);
    for (const uint64_t w : {1, 2}) {
      b.incarnations.erase(w);  // beats no more
      b.live(kSilence + 300ms);
    }
    CHECK_FALSE(client->ended);
    CHECK(b.last<to_worker::Prepare>(3) != nullptr);
  }
  SUBCASE("many deaths") {
    Bench b;
    for (uint64_t w = 1; w <= 6; ++w) b.join(Role::kBoth, w);
    auto client = b.submit("AB", 1);
    b.lose(5);
    b.lose(6);
    b.lose(1);
    b.lose(2);
    CHECK_FALSE(client->ended);
  }
}

TEST_CASE("a request that kills at one place is found, though its last token died with the first") {
  Bench b;
  for (uint64_t w = 1; w <= 3; ++w) b.join(Role::kBoth, w);
  auto client = b.submit("AB", 1);
  b.tokens(1, 0, "xyz");
  b.lose(1);
  REQUIRE(b.last<to_worker::Prepare>(2));
  b.tokens(2, 3, "w");  // made before, and lost
  b.lose(2);
  REQUIRE(client->ended);
  CHECK(client->ended->status.message.find("2 workers died") != std::string::npos);
}

TEST_CASE("one suspect a worker, until it has made more than when one died") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto one = b.submit("AB", 1);
  auto two = b.submit("CD", 2);
  b.lose(1);
  b.join(Role::kBoth, 2);
  CHECK(b.count<to_worker::Prepare>(2) == 1);
  CHECK(b.status().waiting == 1);
  b.submit("EF", 3);  // one that is not under suspicion is not held up
  CHECK(b.count<to_worker::Prepare>(2) == 2);
  const auto& p = std::get<to_worker::Prepare>(*std::find_if(
      b.mesh->sent[2].begin(), b.mesh->sent[2].end(),
      [](const ToWorker& m) { return std::holds_alternative<to_worker::Prepare>(m); }));
  to_coordinator::TokenRun run;
  run.transfer = p.transfer;
  run.attempt = p.attempt;
  run.ids = {'x'};
  b.from(2, to_coordinator::Tokens{{run}});
  CHECK(b.count<to_worker::Prepare>(2) == 2);  // one may have been lost with the first death
  run.position = 1;
  b.from(2, to_coordinator::Tokens{{run}});
  CHECK(b.count<to_worker::Prepare>(2) == 3);  // at once
}

}  // namespace headrace::coordinator

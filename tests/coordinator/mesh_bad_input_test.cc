// Workers that break the rules of the mesh, one by one: tests/README.md, "Bad input".
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

#include <limits>

namespace headrace::coordinator {
using namespace fakes;
namespace {

// (The fake text ends with a full stop.) What has to hold after each: a request is answered by the
// worker that is left or came back.
void answers(Bench& b, uint64_t worker, uint64_t id) {
  auto client = b.submit("AB", id);
  REQUIRE(b.last<to_worker::Prepare>(worker));
  b.tokens(worker, 0, "xy", Finish::kStop);
  REQUIRE(client->ended);
  CHECK(client->text == "xy.");
  CHECK_FALSE(client->broken);
}

TEST_CASE("Register again on one link: welcomed again, nothing is lost") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  b.from(1, hello(Role::kBoth, 1));
  CHECK(b.count<to_worker::Welcome>(1) == 2);
  CHECK(b.mesh->dropped.empty());
  b.tokens(1, 0, "x", Finish::kStop);
  REQUIRE(client->ended);
  CHECK(client->text == "x.");
}

TEST_CASE("Register as another process on one link: the link is closed, its work goes elsewhere") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  auto other = hello(Role::kBoth, 1);
  other.incarnation = {77, 78};
  b.from(1, other);
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{1}});
  CHECK(b.status().workers.empty());
  b.incarnations.erase(1);
  CHECK_FALSE(client->ended);
  b.join(Role::kBoth, 2);
  b.live(1s);
  REQUIRE(b.last<to_worker::Prepare>(2));
  b.tokens(2, 0, "x", Finish::kStop);
  REQUIRE(client->ended);
  CHECK(client->text == "x.");
}

TEST_CASE("a beat in another process's name does not keep a worker alive") {
  Bench b;
  b.join(Role::kBoth, 1);
  to_coordinator::Beat beat;
  beat.incarnation = {77, 78};
  beat.blocks.total = beat.blocks.free = std::numeric_limits<uint32_t>::max();
  b.from(1, beat);
  CHECK(b.status().workers.at(0).blocks.free != std::numeric_limits<uint32_t>::max());
  answers(b, 1, 1);
}

TEST_CASE("words for work that the sender does not have change nothing") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("AB", 1);
  const uint64_t has = b.last<to_worker::Prepare>(1) ? 1 : 2;
  const uint64_t other = 3 - has;
  const auto run = b.run_of(has, 0, "evil", Finish::kStop);
  b.from(other, to_coordinator::Tokens{{run}});
  b.from(other, to_coordinator::AttemptFailed{run.transfer, run.attempt,
                                              error(Errc::kInternal, "not mine")});
  b.from(other, to_coordinator::Owned{run.transfer, run.attempt});
  b.from(other, to_coordinator::PrefillDone{run.transfer, run.attempt, 1ms, 1});
  b.from(other, to_coordinator::Refuse{run.transfer, run.attempt, error(Errc::kOverloaded, "no")});
  b.from(9, to_coordinator::Tokens{{run}});  // a worker that never joined
  CHECK(client->ids.empty());
  CHECK_FALSE(client->ended);
  auto old = run;
  old.attempt = Attempt{raw(run.attempt) - 1};
  b.from(has, to_coordinator::Tokens{{old}});
  CHECK(client->ids.empty());
  b.tokens(has, 0, "ok", Finish::kStop);
  REQUIRE(client->ended);
  CHECK(client->text == "ok.");
  CHECK(b.status().totals.stale >= 5);
}

TEST_CASE("ids that are no tokens and positions past the log never reach a client") {
  for (const Token bad : {Token{-1}, std::numeric_limits<Token>::max(), Token{1 << 20}}) {
    Bench b;
    b.join(Role::kBoth, 1);
    auto client = b.submit("AB", 1);
    auto run = b.run_of(1, 0, "x");
    run.ids.push_back(bad);
    b.from(1, to_coordinator::Tokens{{run}});
    for (const Token id : client->ids) CHECK(id != bad);
    b.live(2s);
  }
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  b.tokens(1, std::numeric_limits<uint32_t>::max(), "x", Finish::kStop);
  b.tokens(1, 5, "x", Finish::kStop);
  CHECK(client->ids.empty());
  CHECK((!client->ended || client->ended->finish == Finish::kError));
}

}  // namespace
}  // namespace headrace::coordinator

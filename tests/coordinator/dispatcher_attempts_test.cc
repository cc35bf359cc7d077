// The hand-off protocol and replay, as the Dispatcher sees them:
// coordinator/dispatcher_attempts.cc.
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

// One prefill worker (1) and two decode workers (2, 3); every prompt goes over both roles.
struct PdBench : Bench {
  PdBench() : Bench({Term{3}, PdMode::kAlways}) {
    join(Role::kPrefill, 1);
    join(Role::kDecode, 2);
    join(Role::kDecode, 3);
  }
  // Takes request `id` ("ABCDE") to a phase, at decode worker 2.
  std::shared_ptr<Client> bring(Phase phase, uint64_t id = 1, uint32_t max_tokens = 10) {
    auto client = submit("ABCDE", id, max_tokens);
    if (phase == Phase::kGranting) return client;
    grant(2);
    if (phase == Phase::kPrefilling) return client;
    prefill_done(1);
    owned(2);
    tokens(2, 0, "xy");
    return client;
  }
  void nothing_left() {
    const ClusterStatus s = status();
    CHECK(s.running + s.waiting + s.draining == 0);
    for (const WorkerStatus& w : s.workers) CHECK(w.in_flight == 0);
  }
};

constexpr Phase kPhases[] = {Phase::kGranting, Phase::kPrefilling, Phase::kDecoding};

}  // namespace

TEST_CASE("a hand-off: Prepare, Grant, Start, PrefillDone, Owned, Tokens") {
  PdBench b;
  auto client = b.submit("ABCDE", 1, 2);
  const auto* p = b.last<to_worker::Prepare>(2);
  REQUIRE(p);
  CHECK(p->remote_prefill);
  CHECK(p->term == Term{3});
  CHECK(p->worker == Incarnation{2, 2});
  CHECK(b.last<to_worker::Start>(1) == nullptr);  // D first
  b.grant(2);
  const auto* s = b.last<to_worker::Start>(1);
  REQUIRE(s);
  CHECK(s->tokens == std::vector<Token>{'A', 'B', 'C', 'D'});  // n-1: D computes the last
  CHECK(s->worker == Incarnation{1, 1});
  CHECK(s->grant.blocks.size() == 1);
  CHECK(s->transfer == p->transfer);
  b.prefill_done(1);
  CHECK(b.status().workers.at(0).in_flight == 0);
  b.owned(2);
  b.tokens(2, 0, "xy", Finish::kLength);
  REQUIRE(client->ended);
  CHECK(client->text == "xy.");
  CHECK(client->ended->remote_prefill);
  CHECK(b.status().totals.remote_prefills == 1);
  // Both sides are told that the attempt is over, and say so.
  CHECK(b.count<to_worker::Cancel>(1) == 1);
  CHECK(b.count<to_worker::Cancel>(2) == 1);
  b.nothing_left();
}

TEST_CASE("the end may come in any order of PrefillDone, Owned and Tokens") {
  PdBench b;
  auto client = b.bring(Phase::kPrefilling);
  b.tokens(2, 0, "x");  // Owned was lost: tokens prove it
  b.owned(2);           // late
  b.tokens(2, 1, "y", Finish::kStop);
  b.prefill_done(1);  // later still
  CHECK(client->text == "xy.");
  CHECK(client->ended->remote_prefill);
  CHECK(b.status().totals.stale == 2);
  b.nothing_left();
}

TEST_CASE("cancel in every phase frees both sides") {
  for (const Phase phase : kPhases) {
    PdBench b;
    auto client = b.bring(phase);
    b.tell(Abandon{{1, 1}});
    REQUIRE(client->ended);
    CHECK(client->ended->finish == Finish::kCancelled);
    CHECK(b.count<to_worker::Cancel>(1) == 1);
    CHECK(b.count<to_worker::Cancel>(2) == 1);
    b.grant(2);  // crossing the Cancel: no Start follows
    CHECK(b.count<to_worker::Start>(1) == (phase == Phase::kGranting ? 0 : 1));
    b.nothing_left();
  }
}

TEST_CASE("a worker lost in any phase: the request goes on from the log elsewhere") {
  for (const Phase phase : kPhases) {
    for (const uint64_t lost : {1, 2}) {
      CAPTURE(int(phase));
      CAPTURE(lost);
      PdBench b;
      auto client = b.bring(phase);
      const TransferId before = b.last<to_worker::Prepare>(2)->transfer;
      b.lose(lost);
      if (phase == Phase::kDecoding && lost == 1) {
        b.tokens(2, 2, "z", Finish::kStop);  // P's part was over: nothing happens
        CHECK(client->text == "xyz.");
        CHECK(b.status().totals.attempts == 1);
        b.nothing_left();
        continue;
      }
      // P lost: a decode worker does it all. D lost: the other one, P as before.
      const uint64_t at = lost == 1 ? 2 : 3;
      const auto* p = b.last<to_worker::Prepare>(at);
      REQUIRE(p);
      CHECK(p->attempt == Attempt{2});
      CHECK(p->transfer != before);
      CHECK(p->remote_prefill == (lost == 2));
      const uint32_t logged = phase == Phase::kDecoding ? 2 : 0;
      CHECK(p->generated == logged);
      CHECK(p->prompt.size() == 5 + logged);
      CHECK(p->max_tokens == 10 - logged);
      if (lost == 2) {
        CHECK(b.count<to_worker::Cancel>(1) == 1);
        b.grant(3);
        CHECK(b.last<to_worker::Start>(1)->tokens.size() == 4 + logged);
        b.prefill_done(1);
        b.owned(3);
      }
      b.tokens(at, logged, logged ? "z" : "xyz", Finish::kStop);
      CHECK(client->text == "xyz.");
      CHECK_FALSE(client->broken);
      CHECK(client->ended->usage.prompt_tokens == 5);
      CHECK(client->ended->usage.completion_tokens == 3);
      b.nothing_left();
    }
  }
}

TEST_CASE("the last decode worker lost: a stated error once the wait for another is over") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  b.tokens(1, 0, "x");
  b.lose(1);
  b.live(kNoWorkerWait - 1s);
  CHECK_FALSE(client->ended);
  b.live(2s);
  REQUIRE(client->ended);
  CHECK(client->ended->status.code == Errc::kUnavailable);
  CHECK(client->ended->status.message.find("no worker that decodes is left: ") == 0);
  // Another one in time saves it.
  Bench c;
  c.join(Role::kBoth, 1);
  auto saved = c.submit("AB", 1);
  c.tokens(1, 0, "x");
  c.lose(1);
  c.live(2s);
  c.join(Role::kBoth, 2);
  REQUIRE(c.last<to_worker::Prepare>(2));
  c.tokens(2, 1, "y", Finish::kStop);
  CHECK(saved->text == "xy.");
}

TEST_CASE("three failed attempts in a row end a request, with the last reason") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("AB", 1);
  for (const uint64_t at : {1, 2, 1}) {
    const auto* p = b.last<to_worker::Prepare>(at);
    REQUIRE(p);
    b.from(at, to_coordinator::AttemptFailed{p->transfer, p->attempt,
                                             error(Errc::kInternal, "device broke")});
    b.live(200ms);
  }
  REQUIRE(client->ended);
  CHECK(client->ended->status.code == Errc::kInternal);
  CHECK(client->ended->status.message ==
        "failed 3 times without a new token, its limit; at last: worker both-1: device broke");
}

TEST_CASE("a new token begins the count of failures anew, up to a limit in all") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("AB", 1);
  uint32_t made = 0;
  int tries = 0;
  for (; tries < 2 * kFailuresMax && !client->ended; ++tries) {
    const uint64_t at = b.status().workers[0].in_flight > 0 ? 1 : 2;
    b.tokens(at, made++, "x");
    const auto* p = b.last<to_worker::Prepare>(at);
    b.from(at, to_coordinator::AttemptFailed{p->transfer, p->attempt,
                                             error(Errc::kInternal, "device broke")});
    b.live(200ms);
  }
  CHECK(tries == kFailuresMax);
  REQUIRE(client->ended);
  CHECK(client->ended->status.message.starts_with("failed 16 times in all, its limit"));
  CHECK(client->ids.size() == static_cast<size_t>(kFailuresMax));
}

TEST_CASE(
    "a refusal by a worker that registers anew is no failure, and ends with the queue's wait") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  const Instant begun = b.strand->now();
  int refusals = 0;
  for (; refusals < 1000 && !client->ended; ++refusals) {
    const auto* p = b.last<to_worker::Prepare>(1);
    const int before = b.count<to_worker::Prepare>(1);
    b.from(1, to_coordinator::Refuse{p->transfer, p->attempt, error(Errc::kStale, "not me")});
    CHECK(b.count<to_worker::Prepare>(1) == before);  // left alone for a moment
    while (b.count<to_worker::Prepare>(1) == before && !client->ended) b.live(100ms);
  }
  REQUIRE(client->ended);
  CHECK(client->ended->status.code == Errc::kOverloaded);
  CHECK(refusals > kAttemptsMax);
  CHECK(b.strand->now() - begun < kQueueWait + 2s);
  CHECK(b.status().totals.attempts_failed == 0);
}

TEST_CASE("gaps are replayed where they came from, so often, then they count") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  int gaps = 0;
  for (; gaps < 100 && !client->ended; ++gaps) {
    b.tokens(1, 5, "x");
    b.live(2s);
  }
  CHECK(gaps == kGapsMax + kAttemptsMax);
  REQUIRE(client->ended);
  CHECK(client->ended->status.message.find("left out tokens from position 0") != std::string::npos);
}

TEST_CASE("an outcome that would be the same elsewhere is not tried again") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("AB", 1);
  auto run = b.run_of(1, 0, "", Finish::kError);
  run.status = error(Errc::kNumeric, "logits hold NaN");
  b.from(1, to_coordinator::Tokens{{run}});
  REQUIRE(client->ended);
  CHECK(client->ended->status.code == Errc::kNumeric);
  CHECK(b.count<to_worker::Prepare>(2) == 0);
}

TEST_CASE("only the last word was lost: the answer is complete") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1, 2);
  b.tokens(1, 0, "xy");
  b.lose(1);
  REQUIRE(client->ended);
  CHECK(client->ended->finish == Finish::kLength);
  CHECK(client->text == "xy.");
}

TEST_CASE("a refusal goes elsewhere or waits; it is no failure") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("AB", 1);
  for (const uint64_t at : {1, 2}) {
    const auto* p = b.last<to_worker::Prepare>(at);
    REQUIRE(p);
    b.from(at, to_coordinator::Refuse{p->transfer, p->attempt, error(Errc::kOverloaded, "full")});
  }
  CHECK(b.status().waiting == 1);
  b.live(200ms);
  CHECK(b.status().running == 1);
  CHECK(b.count<to_worker::Prepare>(1) == 2);
  CHECK(b.status().totals.attempts_failed == 0);
  // For ever refused: it ends when its time in the queue is over.
  for (int i = 0; i < 400 && !client->ended; ++i) {
    for (const uint64_t at : {1, 2}) {
      const auto* p = b.last<to_worker::Prepare>(at);
      b.from(at, to_coordinator::Refuse{p->transfer, p->attempt, error(Errc::kOverloaded, "full")});
    }
    b.live(100ms);
  }
  REQUIRE(client->ended);
  CHECK(client->ended->status.code == Errc::kOverloaded);
  CHECK(client->ended->status.message.find("30 s") != std::string::npos);
}

TEST_CASE("a refusal of the prefill worker gives the grant back") {
  PdBench b;
  b.bring(Phase::kPrefilling);
  const auto* s = b.last<to_worker::Start>(1);
  b.from(1, to_coordinator::Refuse{s->transfer, s->attempt, error(Errc::kOverloaded, "full")});
  CHECK(b.count<to_worker::Cancel>(2) == 1);
  b.live(200ms);
  CHECK(b.status().running == 1);
}

TEST_CASE("repeated, stale and foreign messages change nothing") {
  PdBench b;
  auto client = b.bring(Phase::kPrefilling);
  b.grant(2);  // repeated: no second Start
  CHECK(b.count<to_worker::Start>(1) == 1);
  b.prefill_done(1);
  b.prefill_done(1);
  b.owned(2);
  b.owned(2);
  b.tokens(2, 0, "xy");
  b.tokens(2, 0, "xy");
  b.tokens(2, 1, "y");
  auto old = b.run_of(2, 2, "Q");
  old.attempt = Attempt{0};
  b.from(2, to_coordinator::Tokens{{old}});
  b.from(3, to_coordinator::Tokens{{b.run_of(2, 2, "Q")}});  // not its request
  b.from(1, to_coordinator::Tokens{{b.run_of(2, 2, "Q")}});  // P makes no tokens
  auto unknown = b.run_of(2, 2, "Q");
  unknown.transfer = {9, 9};
  b.from(2, to_coordinator::Tokens{{unknown}});
  CHECK(client->ids.size() == 2);
  CHECK(b.status().totals.repeats == 2);
  CHECK(b.status().totals.stale == 7);
  b.tokens(2, 1, "yz", Finish::kStop);  // overlaps and adds
  CHECK(client->text == "xyz.");
  CHECK_FALSE(client->broken);
}

TEST_CASE(
    "gaps, contradictions and nonsense fail the attempt, loudly, and never reach the client") {
  for (const int kind : {0, 1, 2, 3}) {
    PdBench b;
    auto client = b.bring(Phase::kDecoding);
    if (kind == 0) b.tokens(2, 3, "z");
    if (kind == 1) b.tokens(2, 1, "Q");
    if (kind == 2) {
      auto run = b.run_of(2, 2, "a");
      run.ids = {99999};
      b.from(2, to_coordinator::Tokens{{run}});
    }
    if (kind == 3) b.tokens(2, 2, "0123456789");  // 12 of at most 10
    CHECK(b.status().totals.attempts_failed == 1);
    CHECK(b.status().totals.gaps == (kind == 0 ? 1 : 0));
    CHECK(b.status().totals.conflicts == (kind == 1 ? 1 : 0));
    const uint64_t at = kind == 0 ? 2 : 3;  // a gap is nobody's fault
    REQUIRE(b.last<to_worker::Prepare>(at));
    CHECK(b.last<to_worker::Prepare>(at)->generated == 2);
    b.grant(at);
    b.owned(at);
    b.tokens(at, 2, "z", Finish::kStop);
    CHECK(client->text == "xyz.");
  }
}

TEST_CASE("a grant that cannot be the worker's own is refused") {
  for (const int kind : {0, 1, 2, 3}) {
    PdBench b;
    b.submit("ABCDE", 1);
    const auto& p = *b.last<to_worker::Prepare>(2);
    GrantedBlocks g{{2, 2}, {"127.0.0.1", 9002}, {1, 1}, {{BlockId{0}, Generation{1}}}};
    if (kind == 0) g.decode = {7, 7};
    if (kind == 1) g.endpoint.port = 0;
    if (kind == 2) g.blocks.clear();
    if (kind == 3) g.blocks[0].block = BlockId{100};
    b.from(2, to_coordinator::Grant{p.transfer, p.attempt, g});
    CHECK(b.count<to_worker::Start>(1) == 0);
    CHECK(b.last<to_worker::Prepare>(3) != nullptr);  // elsewhere
  }
}

TEST_CASE("a worker that still holds a cancelled attempt is told again") {
  PdBench b;
  b.bring(Phase::kDecoding);
  const TransferId transfer = b.last<to_worker::Prepare>(2)->transfer;
  b.tell(Abandon{{1, 1}});
  b.beats[2].transfers = {transfer};
  b.live(3s);
  CHECK(b.count<to_worker::Cancel>(2) >= 2);
  const int told = b.count<to_worker::Cancel>(2);
  b.from(2, to_coordinator::Quiesced{transfer, Attempt{1}, 3});
  b.from(1, to_coordinator::Quiesced{transfer, Attempt{1}, 0});
  b.live(3s);
  CHECK(b.count<to_worker::Cancel>(2) == told);
}

namespace {

// One worker that does it all, and clients that are known or are not.
struct RankBench : Bench {
  explicit RankBench(uint32_t blocks = 100) : Bench({Term{3}, PdMode::kNever}) {
    auto who = hello(Role::kBoth, 1);
    who.kv_blocks = blocks;
    join(who, 1);
  }
  std::shared_ptr<Client> ask(uint64_t id, bool known) {
    Submit m;
    m.request = {id, id};
    m.prompt = "ABC";
    m.max_tokens = 200;
    m.known = known;
    return submit(std::move(m));
  }
  int placed() const { return count<to_worker::Prepare>(1); }
  uint64_t newest() const { return last<to_worker::Prepare>(1)->request.hi; }
};

}  // namespace

TEST_CASE("while known clients are served, strangers share a little of each worker") {
  RankBench b;
  b.ask(1, true);
  for (uint64_t id = 2; id < 7; ++id) b.ask(id, false);
  REQUIRE(b.placed() == 1 + kStrangersLeast);
  b.ask(7, true);  // passes those who wait
  CHECK(b.newest() == 7);
  b.ask(8, false);
  CHECK(b.placed() == 2 + kStrangersLeast);
  SUBCASE("one that takes something makes room for the next") {
    b.ask(1 << 10, true);
    for (const ToWorker& m : b.mesh->sent[1]) {
      const auto* p = std::get_if<to_worker::Prepare>(&m);
      if (!p || p->request.hi != 2) continue;
      to_coordinator::TokenRun run;
      run.transfer = p->transfer;
      run.attempt = p->attempt;
      run.ids = {'x'};
      b.from(1, to_coordinator::Tokens{{run}});
      break;
    }
    CHECK(b.newest() == 1 << 10);
    b.acknowledge(2, 1);
    CHECK(b.newest() == 4);
    b.acknowledge(2, 1);  // said again
    CHECK(b.newest() == 4);
  }
  SUBCASE("of those who wait for a sign, each stops after a few tokens") {
    for (uint64_t id = 100; id < 100 + kStrangersShared; ++id) b.ask(id, false);
    b.tell(Abandon{{2, 2}});
    REQUIRE(b.newest() == 4);
    b.tokens(1, 0, "x");  // one is enough in such a crowd
    CHECK(b.newest() == 5);
    b.acknowledge(4, 1);
    CHECK(b.newest() == 4);  // goes on before the others
    CHECK(b.last<to_worker::Prepare>(1)->generated == 1);
  }
  SUBCASE("one that goes makes room") {
    b.tell(Abandon{{3, 3}});
    CHECK(b.newest() == 4);
  }
  SUBCASE("soon after the last known one has gone, all go") {
    b.tell(Abandon{{1, 1}});
    b.tell(Abandon{{7, 7}});
    CHECK(b.placed() == 2 + kStrangersLeast);
    b.live(kKnownFor + 200ms);
    CHECK(b.placed() == 8);
  }
}

TEST_CASE("strangers by themselves take what room there is") {
  RankBench b;
  for (uint64_t id = 1; id < 7; ++id) b.ask(id, false);
  CHECK(b.placed() == 6);
}

TEST_CASE("a stranger that waits for room is not passed for ever") {
  RankBench b(20);  // one at a time
  b.ask(1, true);
  b.ask(2, false);
  for (uint64_t id = 3; id < 9; ++id) b.ask(id, true);
  std::vector<uint64_t> order;
  for (int i = 0; i < 7; ++i) {
    b.tell(Abandon{{b.newest(), b.newest()}});
    order.push_back(b.newest());
  }
  CHECK(order == std::vector<uint64_t>{3, 4, 5, 2, 6, 7, 8});
}

}  // namespace headrace::coordinator

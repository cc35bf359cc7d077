// Who lives, the tokenizer, sweeps: coordinator/dispatcher_workers.cc.
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;

TEST_CASE("a worker is welcomed, beats keep it, silence loses it") {
  Bench b;
  b.join(Role::kBoth, 1);
  const auto* welcome = b.last<to_worker::Welcome>(1);
  REQUIRE(welcome);
  CHECK(welcome->worker == WorkerId{1});
  CHECK(welcome->beat_every == kBeatEvery);
  b.live(5s);
  CHECK(b.status().workers.size() == 1);
  b.strand->advance(kSilence + 200ms);
  CHECK(b.status().workers.empty());
  REQUIRE(b.mesh->dropped.size() == 1);
  CHECK(b.status().totals.workers_lost == 1);
}

TEST_CASE("words that waited for the Dispatcher itself are no silence, silence after them is") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.live(1s);
  b.strand->stall(2 * kSilence);  // a very long prompt; the worker beats all the while
  b.strand->advance(kSweepPause / 2);
  CHECK(b.status().workers.size() == 1);
  b.live(100ms);  // its words have their turn
  CHECK(b.status().workers.size() == 1);
  b.live(5s);
  CHECK(b.status().totals.workers_lost == 0);
  // One that died meanwhile is found: a sweep is put off once.
  b.strand->stall(2 * kSilence);
  b.strand->advance(kSweepPause);
  CHECK(b.status().workers.empty());
}

TEST_CASE("a worker that beats and hears nothing is lost as soon as one that is silent") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  b.live(5s);
  b.deaf.insert(1);
  const Instant cut = b.strand->now();
  while (b.status().workers.size() == 2 && b.strand->now() - cut < 60s) b.live(100ms);
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{1}});
  CHECK(b.strand->now() - cut <= 1500ms * kSlowdown);
  CHECK(b.strand->now() - cut >= kPingWithin);
  b.incarnations.erase(1);
  b.live(5s);
  CHECK(b.status().workers.size() == 1);
}

TEST_CASE("answers that waited for the Dispatcher itself are no silence") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.live(1s);
  for (int i = 0; i < 5; ++i) {
    b.strand->stall(3 * kSilence);
    b.live(1s);
  }
  CHECK(b.status().totals.workers_lost == 0);
}

TEST_CASE("nothing is taken before an answer was possible, or long after the last decode worker") {
  DispatcherOptions options;
  options.waits_for_first = false;
  Bench b(options);
  const auto refused = [&](uint64_t id) {
    auto client = b.submit("AB", id);
    return client->ended ? client->ended->status : Status{};
  };
  CHECK(refused(1).code == Errc::kUnavailable);
  CHECK(refused(1).message == "no worker has joined");
  b.join(Role::kPrefill, 1);
  CHECK(refused(2).message == "no worker that decodes has joined");
  b.join(Role::kBoth, 2);
  CHECK(refused(3).ok());
  b.lose(2);
  b.live(kNoWorkerWait - 500ms);
  CHECK(refused(4).ok());  // one may be back soon
  b.live(1s);
  CHECK(refused(5).message == "no worker that decodes is left: worker both-2 was lost: closed");
  b.join(Role::kBoth, 3);
  CHECK(refused(6).ok());
}

TEST_CASE("a worker that drains: what is said of it, and when new requests are refused") {
  DispatcherOptions options;
  options.log = std::make_shared<Events>();
  auto& lines = static_cast<Events&>(*options.log).lines;
  Bench b(options);
  b.join(Role::kPrefill, 7);
  b.join(Role::kBoth, 1);
  auto runs = b.submit("AB", 1);
  b.beats[1].draining = true;
  b.live(200ms);
  CHECK(b.status().not_ready == "every worker that decodes is draining");
  CHECK_FALSE(b.submit("CD", 2)->ended);  // one may come
  b.live(kNoWorkerWait + 200ms);
  auto late = b.submit("EF", 3);
  REQUIRE(late->ended);
  CHECK(late->ended->status.message == "every worker that decodes is draining");
  CHECK_FALSE(runs->ended);
  b.lose(1);
  CHECK(b.status().totals.workers_lost == 0);
  CHECK(b.status().not_ready ==
        "no worker that decodes is left: worker both-1 drained and left: closed");
  b.live(5s);
  CHECK_FALSE(runs->ended);  // it waits for the next one
  b.join(Role::kBoth, 2);
  CHECK(b.last<to_worker::Prepare>(2));
  CHECK(Events::count(lines, "worker both-1 drains: it takes nothing new") == 1);
  CHECK(Events::count(lines, "worker both-1 drained and left: closed; last word ") == 1);
}

TEST_CASE("the log tells who came and went, what failed, and when the cluster was ready") {
  DispatcherOptions options;
  options.log = std::make_shared<Events>();
  auto& lines = static_cast<Events&>(*options.log).lines;
  Bench b(options);
  CHECK(Events::count(lines, "the cluster is not ready: no worker has joined") == 0);
  b.join(Role::kBoth, 1);
  b.live(300ms);
  CHECK(Events::count(lines, "worker both-1 (both) joined as number 1: process 1001, fake, ") == 1);
  CHECK(Events::count(lines, "the cluster is ready") == 1);
  auto stranger = hello(Role::kBoth, 2);
  stranger.card.name = "Other";
  b.tell(WorkerJoined{WorkerId{2}, stranger});
  CHECK(Events::count(lines, "a worker was refused (name 'both-2', process 1002): worker serves") ==
        1);
  b.submit("AB", 1);
  const auto p = *b.last<to_worker::Prepare>(1);
  b.from(1, to_coordinator::AttemptFailed{p.transfer, p.attempt, error(Errc::kInternal, "dizzy")});
  CHECK(Events::count(lines,
                      "request 00000000000000010000000000000001: attempt 1 failed at worker "
                      "both-1, 0 tokens are kept: internal_error, worker both-1: dizzy; blamed: "
                      "worker both-1") == 1);
  b.incarnations.erase(1);  // it falls silent
  b.strand->advance(kSilence + 300ms);
  CHECK(Events::count(lines, "worker both-1 was lost: it did not answer within ") == 1);
  CHECK(Events::count(lines,
                      "request 00000000000000010000000000000001: attempt 2 failed at worker "
                      "both-1, ") == 1);
  CHECK(Events::count(lines, "the cluster is not ready: no worker that decodes is left: ") == 1);
}

TEST_CASE("a flood of failures leaves a count") {
  DispatcherOptions options;
  options.log = std::make_shared<Events>();
  auto& lines = static_cast<Events&>(*options.log).lines;
  Bench b(options);
  auto large = hello(Role::kBoth, 1);
  large.kv_blocks = 10'000;
  b.join(large, 1);
  for (uint64_t id = 1; id <= 25; ++id) b.submit("AB", id);
  b.lose(1);
  b.live(1500ms);
  CHECK(Events::count(lines, "request ") == static_cast<int>(kEventsPerSecond));
  CHECK(Events::count(lines, "15 more lines of this kind (failed) were left out") == 1);
}

TEST_CASE("a process that dials anew is no namesake, although its old link has not ended") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  auto again = hello(Role::kBoth, 1);
  again.incarnation = {77, 77};
  b.tell(WorkerJoined{WorkerId{2}, again});
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{1}});
  CHECK(b.last<to_worker::Welcome>(2));
  REQUIRE(b.last<to_worker::Prepare>(2));
  CHECK_FALSE(client->ended);
}

TEST_CASE(
    "a namesake is refused while the first one speaks, and takes its place when it does not") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  auto second = hello(Role::kBoth, 2);
  second.name = "both-1";
  b.live(300ms);
  b.tell(WorkerJoined{WorkerId{2}, second});
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{2}});  // to come again
  CHECK_FALSE(b.last<to_worker::Rejected>(2));
  b.live(kNameHeld + 200ms);
  b.tell(WorkerJoined{WorkerId{3}, second});
  REQUIRE(b.last<to_worker::Rejected>(3));
  CHECK(b.last<to_worker::Rejected>(3)->why.message.find("names are unique") != std::string::npos);
  CHECK(b.status().workers.size() == 1);
  // The first one's host is gone without a word; its successor need not wait.
  b.strand->advance(kNameHeld + 100ms);
  b.tell(WorkerJoined{WorkerId{4}, second});
  CHECK_FALSE(b.last<to_worker::Rejected>(4));
  REQUIRE(b.last<to_worker::Prepare>(4));
  CHECK_FALSE(client->ended);
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{2}, WorkerId{3}, WorkerId{1}});
}

TEST_CASE("late words of a dead worker do not keep its name from the one born after it") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto second = hello(Role::kBoth, 2);
  second.name = "both-1";
  b.live(300ms);
  b.tell(WorkerJoined{WorkerId{2}, second});
  b.deaf.insert(1);  // it is heard, and answers nothing that was asked since
  b.live(kNameHeld + 200ms);
  b.tell(WorkerJoined{WorkerId{3}, second});
  CHECK_FALSE(b.last<to_worker::Rejected>(3));
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{2}, WorkerId{3}});  // to come again
}

TEST_CASE("a worker of another model is rejected by name and its link closed") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto other = hello(Role::kBoth, 2);
  other.card.name = "Other 7B";
  b.tell(WorkerJoined{WorkerId{2}, other});
  const auto* rejected = b.last<to_worker::Rejected>(2);
  REQUIRE(rejected);
  CHECK(rejected->why.message.find("Other 7B") != std::string::npos);
  CHECK(rejected->why.message.find("Fake 1M") != std::string::npos);
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{2}});
  CHECK(b.status().workers.size() == 1);
}

TEST_CASE("the same process over a fresh link replaces its old self") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  auto again = hello(Role::kBoth, 1);
  b.tell(WorkerJoined{WorkerId{5}, again});
  CHECK(b.mesh->dropped == std::vector<WorkerId>{WorkerId{1}});
  CHECK(b.status().workers.size() == 1);
  REQUIRE(b.last<to_worker::Prepare>(5));
  b.from(1, to_coordinator::Tokens{{b.run_of(1, 0, "x")}});  // from the old link: too late
  CHECK(client->ids.empty());
}

TEST_CASE("what is asked after the last worker left waits for the next one, or ends by name") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.lose(1);
  auto kept = b.submit("AB", 1);  // the tokenizer is here, the card is not
  CHECK_FALSE(kept->ended);
  b.join(Role::kBoth, 2);
  REQUIRE(b.last<to_worker::Prepare>(2));
  b.tokens(2, 0, "x", Finish::kStop);
  REQUIRE(kept->ended);
  CHECK(kept->ended->finish == Finish::kStop);
  b.lose(2);
  auto given_up = b.submit("CD", 2);
  b.live(kNoWorkerWait + 500ms);
  REQUIRE(given_up->ended);
  CHECK(given_up->ended->status.code == Errc::kUnavailable);
}

TEST_CASE("pings name the transfers that live") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.live(1s);
  CHECK(b.last<to_worker::Ping>(1)->live.empty());
  CHECK(b.count<to_worker::Ping>(1) >= 3);
  b.submit("AB", 1);
  b.live(300ms);
  CHECK(b.last<to_worker::Ping>(1)->live ==
        std::vector<TransferId>{b.last<to_worker::Prepare>(1)->transfer});
}

TEST_CASE("the tokenizer comes in pieces, from another worker if one fails") {
  Bench b;
  b.tell(WorkerJoined{WorkerId{1}, hello(Role::kBoth, 1)});
  b.tell(WorkerJoined{WorkerId{2}, hello(Role::kBoth, 2)});
  b.incarnations = {{1, {1, 1}}, {2, {2, 2}}};
  const Bytes bytes = tokenizer_bytes();
  const Digest digest = digest_of(bytes);
  const auto piece = [&](uint64_t at, uint64_t length) {
    return to_coordinator::TokenizerPiece{digest, at, bytes.size(),
                                          Bytes(bytes.begin() + static_cast<long>(at),
                                                bytes.begin() + static_cast<long>(at + length))};
  };
  REQUIRE(b.last<to_worker::FetchTokenizer>(1));
  b.from(1, piece(0, 400));
  CHECK(b.last<to_worker::FetchTokenizer>(1)->offset == 400);
  b.live(kTokenizerPieceWithin + 500ms);  // it says no more
  REQUIRE(b.last<to_worker::FetchTokenizer>(2));
  CHECK(b.last<to_worker::FetchTokenizer>(2)->offset == 0);
  b.from(1, piece(400, 600));  // late, of the other worker
  CHECK_FALSE(b.status().ready);
  b.lose(2);
  b.live(300ms);
  CHECK(b.count<to_worker::FetchTokenizer>(1) == 3);
  b.from(1, piece(0, 1000));
  CHECK(b.status().ready);
}

TEST_CASE("a tokenizer that cannot be used is said at once") {
  Bench b({}, [](std::span<const std::byte>) -> Result<std::shared_ptr<const TextModel>> {
    return error(Errc::kInvalid, "pre-tokenizer 'klingon' is not supported");
  });
  b.join(Role::kBoth, 1);
  CHECK(b.status().not_ready.find("klingon") != std::string::npos);
  auto client = b.submit("A", 1);
  b.live(200ms);
  REQUIRE(client->ended);
  CHECK(client->ended->status.message.find("klingon") != std::string::npos);
}

TEST_CASE("deadlines of an attempt: no grant, no progress, not owned") {
  SUBCASE("no grant") {
    Bench b({Term{1}, PdMode::kAlways});
    b.join(Role::kPrefill, 1);
    b.join(Role::kDecode, 2);
    b.join(Role::kDecode, 3);
    b.submit("ABC", 1);
    b.live(kGrantWithin + 200ms);
    CHECK(b.last<to_worker::Cancel>(2));
    CHECK(b.last<to_worker::Prepare>(3));
  }
  SUBCASE("prefill without progress: a decode worker does it") {
    Bench b({Term{1}, PdMode::kAlways});
    b.join(Role::kPrefill, 1);
    b.join(Role::kDecode, 2);
    b.submit("ABC", 1);
    b.grant(2);
    b.beats[1].running = 1;
    b.live(kProgressWithin - 1s, false);
    CHECK(b.count<to_worker::Prepare>(2) == 1);
    b.live(2s, false);
    CHECK(b.count<to_worker::Prepare>(2) == 2);
    CHECK_FALSE(b.last<to_worker::Prepare>(2)->remote_prefill);
    CHECK(b.status().workers.at(0).state == "stalled");
    b.live(200ms, true);
    CHECK(b.status().workers.at(0).state == "ready");
  }
  SUBCASE("sent, never owned") {
    Bench b({Term{1}, PdMode::kAlways});
    b.join(Role::kPrefill, 1);
    b.join(Role::kDecode, 2);
    b.submit("ABC", 1);
    b.grant(2);
    b.prefill_done(1);
    b.live(kOwnedWithin + 1s);
    CHECK(b.count<to_worker::Prepare>(2) == 2);
  }
  SUBCASE("decode without progress, beats or not") {
    Bench b;
    b.join(Role::kBoth, 1);
    b.join(Role::kBoth, 2);
    auto client = b.submit("ABC", 1);
    b.tokens(1, 0, "x");
    b.beats[1].running = 1;
    b.live(kProgressWithin + 1s, false);
    REQUIRE(b.last<to_worker::Prepare>(2));
    CHECK(b.last<to_worker::Prepare>(2)->generated == 1);
    CHECK_FALSE(client->ended);
    CHECK(b.status().workers.at(0).state == "stalled");
  }
  SUBCASE("steps that end keep a slow request alive") {
    Bench b;
    b.join(Role::kBoth, 1);
    auto client = b.submit("ABC", 1);
    b.live(kProgressWithin * kStarvedFactor - 1s, true);
    CHECK(b.status().running == 1);
    CHECK(b.status().totals.attempts == 1);
    CHECK_FALSE(client->ended);
  }
}

TEST_CASE("a worker that ends steps and starves one sequence loses it") {
  constexpr Duration kPatience = kProgressWithin * kStarvedFactor;
  SUBCASE("decoding: it goes on elsewhere from the log, its neighbour stays") {
    Bench b;
    b.join(Role::kBoth, 1);
    auto starved = b.submit("ABC", 1), fed = b.submit("ABC", 2);
    REQUIRE(b.count<to_worker::Prepare>(1) == 2);
    const auto p = [&](uint64_t id) {
      for (const ToWorker& m : b.mesh->sent[1])
        if (const auto* one = std::get_if<to_worker::Prepare>(&m))
          if (one->request == RequestId{id, id}) return *one;
      return to_worker::Prepare{};
    };
    b.join(Role::kBoth, 2);
    b.beats[1].running = 2;
    const auto first = p(1), second = p(2);
    const auto token = [&](const to_worker::Prepare& to, uint32_t at) {
      to_coordinator::TokenRun run;
      run.transfer = to.transfer;
      run.attempt = to.attempt;
      run.position = at;
      run.ids = {'x'};
      b.from(1, to_coordinator::Tokens{{run}});
    };
    token(first, 0);
    b.acknowledge(1, 1);
    for (uint32_t at = 0; at < (kPatience - 1s) / 1s; ++at) {
      token(second, at);
      b.acknowledge(2, at + 1);
      b.live(1s);
    }
    CHECK(b.status().totals.attempts == 2);
    b.live(2s);
    REQUIRE(b.last<to_worker::Prepare>(2));
    CHECK(b.last<to_worker::Prepare>(2)->request == RequestId{1, 1});
    CHECK(b.last<to_worker::Prepare>(2)->generated == 1);
    CHECK(b.status().totals.attempts == 3);
    CHECK_FALSE(starved->ended);
    CHECK(b.status().workers.at(0).state == "ready");  // its steps end
  }
  SUBCASE("prefilling for another") {
    Bench b({Term{1}, PdMode::kAlways});
    b.join(Role::kPrefill, 1);
    b.join(Role::kDecode, 2);
    b.submit("ABC", 1);
    b.grant(2);
    b.beats[1].running = 2;
    b.live(kPatience + kStreamingWithin - 1s);
    CHECK(b.count<to_worker::Prepare>(2) == 1);
    b.live(2s);
    CHECK(b.count<to_worker::Prepare>(2) == 2);
    CHECK_FALSE(b.last<to_worker::Prepare>(2)->remote_prefill);
  }
  SUBCASE("it may be one that waits there for room") {
    Bench b;
    b.join(Role::kBoth, 1);
    b.submit("ABC", 1);
    b.join(Role::kBoth, 2);
    b.beats[1].waiting = 1;
    b.live(kPatience + kCrowdedWithin - 1s);
    CHECK(b.status().totals.attempts == 1);
    b.live(2s);
    CHECK(b.last<to_worker::Prepare>(2));
  }
}

TEST_CASE("another model after all workers left: what was tokenized ends") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("A", 1);
  b.lose(1);
  auto other = hello(Role::kBoth, 2);
  other.card.name = "Other";
  other.card.weights = {5, 5};
  b.join(other, 2);
  REQUIRE(client->ended);
  CHECK(client->ended->status.message == "the cluster now serves another model: Other");
  CHECK_FALSE(b.submit("B", 2)->ended);
}

TEST_CASE("absurd beats do no harm") {
  Bench b;
  b.join(Role::kBoth, 1);
  to_coordinator::Beat beat;
  beat.incarnation = {1, 1};
  beat.blocks = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 0, 0, 0};
  beat.correction.prefill = -1e300;
  beat.waiting_tokens = UINT64_MAX;
  b.from(1, beat);
  CHECK(b.status().workers.at(0).blocks.free == 100);
  CHECK(b.status().workers.at(0).state == "suspect");
  CHECK_FALSE(b.status().ready);
  b.submit("A", 1);
  CHECK_FALSE(b.last<to_worker::Prepare>(1));  // nobody is routed by such numbers
  b.live(200ms);                               // a sane beat
  CHECK(b.status().workers.at(0).state == "ready");
  CHECK(b.last<to_worker::Prepare>(1));
  beat.incarnation = {9, 9};
  b.from(1, beat);
  CHECK(b.status().totals.stale == 1);
}

}  // namespace headrace::coordinator

#include "worker/worker.h"

#include <doctest/doctest.h>

#include "tests/worker/worker_fixture.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

TEST_CASE("a worker registers with its card and beats as it was told") {
  Rig rig;
  rig.add("d", Role::kDecode);
  rig.add("p", Role::kPrefill);
  const Register& d = rig.coordinator.registration("d");
  CHECK(d.card == sim::sim_card(rig.engine));
  CHECK(d.role == Role::kDecode);
  CHECK(d.name == "d");
  CHECK(d.kv_blocks == 64);
  CHECK(d.kv.port != 0);
  CHECK(rig.coordinator.registration("p").kv.port == 0);
  CHECK(rig.incarnation("d") != rig.incarnation("p"));
  const size_t before = rig.coordinator.said<Beat>("d").size();
  rig.world.run_for(10s);
  const size_t beats = rig.coordinator.said<Beat>("d").size() - before;
  CHECK(beats >= 30);
  CHECK(beats <= 41);
  CHECK(rig.coordinator.said<Beat>("d").back().incarnation == d.incarnation);
}

TEST_CASE("beats tell what runs, waits and is held") {
  Rig rig;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(200);
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(rig.prepare("w", rig.prompt(100), 200, false));
    rig.coordinator.send("w", all.back());
  }
  rig.coordinator.send("w", rig.prepare("w", rig.prompt(20), 20, true));
  rig.world.run_for(3s);
  const Beat b = rig.coordinator.said<Beat>("w").back();
  CHECK(b.running == 3);  // 19 blocks each of 64
  CHECK(b.waiting == 1);
  CHECK(b.waiting_tokens == 100);
  CHECK(b.context_tokens >= 300);
  CHECK(b.steps > 0);
  CHECK(b.transfers.size() == 4);
  CHECK(sim::blocks_add_up(b.blocks));
  CHECK(b.blocks.active >= 21);
}

TEST_CASE("a lost link frees everything at once and the next life is a new one") {
  for (int stage = 0; stage < 20; ++stage) {
    CAPTURE(stage);
    Rig rig(static_cast<uint64_t>(stage) + 1);
    rig.options.token_budget = 16;
    rig.add("p", Role::kPrefill);
    const auto& d = rig.add("d", Role::kBoth);
    const Incarnation before = rig.incarnation("d");
    const auto local = rig.prepare("d", rig.prompt(50), 400, false);
    rig.coordinator.send("d", local);
    const auto m = rig.prepare("d", rig.prompt(120), 60, true);
    rig.coordinator.send("d", m);
    const auto grant = rig.await_grant("d", m.transfer);
    rig.coordinator.send("p", rig.start_for("p", m, grant));
    rig.world.run_for(stage * 3ms);
    rig.coordinator.drop_link("d");
    rig.world.run_for(30ms);  // a step lasts about 1 ms
    CHECK(rig.nothing_held("d"));
    CHECK(d.node->worker().sequences() == 0);
    const size_t said = rig.coordinator.said<Tokens>("d").size();
    rig.world.run_for(2s);
    REQUIRE(rig.coordinator.registered("d"));
    CHECK(rig.incarnation("d") != before);
    CHECK(rig.coordinator.said<Tokens>("d").size() == said);
    CHECK(rig.coordinator.said<Quiesced>("d").empty());
    CHECK(rig.all_free());
    const auto again = rig.prepare("d", rig.prompt(50), 20, false);
    rig.coordinator.send("d", again);
    REQUIRE(rig.await_finish("d", again.transfer));
    CHECK(rig.coordinator.tokens("d", again.transfer) == rig.expected(again));
    CHECK(rig.no_violation());
  }
}

TEST_CASE("a link lost inside a long step frees the step's blocks when it ends") {
  Rig rig;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(1000);  // 0.5 s and more
  const auto m = rig.prepare("w", rig.prompt(20), 400, false);
  rig.coordinator.send("w", m);
  rig.world.run_for(100ms);
  rig.coordinator.drop_link("w");
  rig.world.run_for(50ms);
  CHECK(w.node->worker().blocks().active == 2);
  w.engine->slow_down(1);
  rig.world.run_for(2s);
  CHECK(rig.all_free());
  const auto n = rig.prepare("w", rig.prompt(20), 5, false);
  rig.coordinator.send("w", n);
  REQUIRE(rig.await_finish("w", n.transfer));
  CHECK(rig.coordinator.tokens("w", n.transfer) == rig.expected(n));
  CHECK(rig.no_violation());
}

TEST_CASE("the tokenizer is given in pieces, by digest only") {
  Rig rig;
  rig.add("w", Role::kBoth);
  const Digest digest = sim::sim_card(rig.engine).tokenizer;
  rig.coordinator.send("w", to_worker::FetchTokenizer{digest, 0});
  rig.coordinator.send("w", to_worker::FetchTokenizer{digest, 40});
  rig.coordinator.send("w", to_worker::FetchTokenizer{digest, ~uint64_t{0}});
  rig.coordinator.send("w", to_worker::FetchTokenizer{{9, 9}, 0});
  REQUIRE(rig.await_said<TokenizerPiece>("w", 4));
  const auto pieces = rig.coordinator.said<TokenizerPiece>("w");
  CHECK(pieces[0].bytes.size() == 100);
  CHECK(pieces[0].total == 100);
  CHECK(pieces[1].bytes.size() == 60);
  CHECK(pieces[1].offset == 40);
  CHECK(pieces[2].bytes.empty());
  CHECK(pieces[3].total == 0);
}

TEST_CASE("words of another term are stale: counted, answered, without effect") {
  Rig rig;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(20), 490, false);
  rig.coordinator.send("w", m);
  rig.world.run_for(20ms);
  rig.coordinator.send("w", to_worker::Ping{Term{7}, {}});
  rig.coordinator.send("w", to_worker::Cancel{Term{0}, m.transfer, m.attempt, {}});
  REQUIRE(rig.await_said<Quiesced>("w"));
  CHECK(rig.coordinator.said<Quiesced>("w")[0].blocks_freed == 0);
  CHECK(w.node->worker().counters().stale == 2);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
}

TEST_CASE("each round of pings is answered once, by a beat with its number") {
  Rig rig;
  rig.add("w", Role::kBoth);
  rig.world.run_for(1s);
  rig.coordinator.pinging = false;
  rig.world.run_for(50ms);
  const size_t before = rig.coordinator.said<Beat>("w").size();
  for (const uint64_t number : {100, 100, 99}) {  // two parts, and an old one
    rig.coordinator.send("w", to_worker::Ping{rig.coordinator.term, {}, 0, number});
  }
  rig.world.run_for(20ms);
  const auto beats = rig.coordinator.said<Beat>("w");
  CHECK(beats.size() >= before + 1);
  CHECK(beats.size() <= before + 2);  // its own may fall into that time
  CHECK(beats.back().ping_seen == 100);
  rig.coordinator.drop_link("w");
  rig.world.run_for(3s);
  CHECK(rig.coordinator.said<Beat>("w").back().ping_seen < 100);  // counted anew
}

}  // namespace
}  // namespace headrace::worker

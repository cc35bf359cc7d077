#include "worker/worker.h"

#include <doctest/doctest.h>

#include "tests/worker/worker_fixture.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

// Prompt prefilled on "p", decoded on "d".
void check_remote(Rig& rig, const to_worker::Prepare& m) {
  rig.coordinator.send("d", m);
  const GrantedBlocks grant = rig.await_grant("d", m.transfer);
  REQUIRE(grant.blocks.size() == blocks_for(m.prompt.size(), rig.engine.block_tokens));
  CHECK(grant.decode == rig.incarnation("d"));
  rig.coordinator.send("p", rig.start_for("p", m, grant));
  REQUIRE(rig.await_finish("d", m.transfer));
  CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
}

TEST_CASE("a prompt prefilled elsewhere gives the same tokens and the same KV") {
  for (const uint32_t n : {2u, 16u, 17u, 18u, 33u, 200u}) {
    for (const uint32_t budget : {16u, 64u, 512u}) {
      CAPTURE(n);
      CAPTURE(budget);
      Rig rig(n + budget);
      rig.options.token_budget = budget;
      rig.add("p", Role::kPrefill);
      const auto& d = rig.add("d", Role::kDecode);
      rig.add("both", Role::kBoth);
      auto m = rig.prepare("d", rig.prompt(n), 20, true);
      m.kv_digest = true;
      check_remote(rig, m);
      auto local = rig.prepare("both", m.prompt, 20, false);
      local.kv_digest = true;
      rig.coordinator.send("both", local);
      REQUIRE(rig.await_finish("both", local.transfer));
      CHECK(rig.coordinator.runs("d", m.transfer).back().kv ==
            rig.coordinator.runs("both", local.transfer).back().kv);
      rig.world.run_for(100ms);
      REQUIRE(rig.coordinator.said<Owned>("d").size() == 1);
      CHECK(rig.coordinator.said<Owned>("d")[0].bytes == blocks_for(n - 1, 16) * 256);
      REQUIRE(rig.coordinator.said<PrefillDone>("p").size() == 1);
      const uint64_t blocks = blocks_for(n - 1, 16);
      CHECK(rig.coordinator.said<PrefillDone>("p")[0].bytes == blocks * 256);
      CHECK(rig.coordinator.said<PrefillDone>("p")[0].compute > Duration{0});
      CHECK(d.node->worker().counters().prefilled == 0);
      CHECK(rig.all_free());
      CHECK(rig.no_violation());
    }
  }
}

TEST_CASE("many hand-offs at a time, from several prefill workers") {
  Rig rig(9);
  rig.engine.blocks = 600;
  rig.add("p0", Role::kPrefill);
  rig.add("p1", Role::kPrefill);
  rig.add("d", Role::kDecode);
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 24; ++i) {
    all.push_back(rig.prepare("d", rig.prompt(10 + 9 * static_cast<uint32_t>(i)), 30, true));
    rig.coordinator.send("d", all.back());
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string p = i % 2 == 0 ? "p0" : "p1";
    const auto grant = rig.await_grant("d", all[i].transfer);
    REQUIRE(!grant.blocks.empty());
    rig.coordinator.send(p, rig.start_for(p, all[i], grant));
  }
  for (const auto& m : all) {
    REQUIRE(rig.await_finish("d", m.transfer));
    CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
  }
  rig.world.run_for(100ms);
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
}

TEST_CASE("an owned sequence that is preempted is recomputed by the decode worker") {
  Rig rig(4);
  rig.engine.blocks = 40;
  rig.add("p", Role::kPrefill);
  const auto& d = rig.add("d", Role::kDecode);
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 2; ++i) {
    all.push_back(rig.prepare("d", rig.prompt(20), 450, true));
    rig.coordinator.send("d", all.back());
    const auto grant = rig.await_grant("d", all.back().transfer);
    REQUIRE(!grant.blocks.empty());
    rig.coordinator.send("p", rig.start_for("p", all.back(), grant));
  }
  for (const auto& m : all) {
    REQUIRE(rig.await_finish("d", m.transfer, 60s));
    CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
  }
  CHECK(d.node->worker().counters().preempted > 0);
  CHECK(rig.no_violation());
}

TEST_CASE("repeats get the same answer") {
  Rig rig;
  rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto m = rig.prepare("d", rig.prompt(40), 5, true);
  rig.coordinator.send("d", m);
  rig.coordinator.send("d", m);
  REQUIRE(rig.await_said<Grant>("d", 2));
  const auto grants = rig.coordinator.said<Grant>("d");
  CHECK(grants[0] == grants[1]);
  const auto s = rig.start_for("p", m, grants[0].granted);
  rig.coordinator.send("p", s);
  rig.coordinator.send("p", s);
  REQUIRE(rig.await_finish("d", m.transfer));
  rig.world.run_for(100ms);
  const size_t said = rig.coordinator.said<Tokens>("d").size();
  rig.coordinator.send("d", m);  // the last word, again
  rig.coordinator.send("p", s);
  REQUIRE(rig.await_said<Tokens>("d", said + 1));
  REQUIRE(rig.await_said<PrefillDone>("p", 2));
  CHECK(rig.coordinator.said<Tokens>("d").back() == rig.coordinator.said<Tokens>("d")[said - 1]);
  CHECK(rig.coordinator.said<Grant>("d").size() == 2);
  auto other = m;
  other.attempt = Attempt{2};
  rig.coordinator.send("d", other);
  REQUIRE(rig.await_said<Refuse>("d"));
  CHECK(rig.coordinator.said<Refuse>("d")[0].why.code == Errc::kStale);
}

Status refusal(Rig& rig, const std::string& worker, ToWorker message) {
  const size_t before = rig.coordinator.said<Refuse>(worker).size();
  rig.coordinator.send(worker, std::move(message));
  if (!rig.await_said<Refuse>(worker, before + 1)) return {};
  return rig.coordinator.said<Refuse>(worker).back().why;
}

TEST_CASE("what cannot be served is refused, naming why") {
  Rig rig;
  rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto good = rig.prepare("d", rig.prompt(20), 5, false);
  const auto with = [&](auto change) {
    auto m = good;
    m.transfer = rig.world.random().mint<TransferId>();
    change(m);
    return m;
  };
  const auto check = [&](const std::string& worker, auto message, Errc code,
                         const std::string& words) {
    const Status why = refusal(rig, worker, std::move(message));
    CHECK(why.code == code);
    CHECK_MESSAGE(why.message.find(words) != std::string::npos, why.message);
  };
  check("d", with([](auto& m) { m.prompt.clear(); }), Errc::kInvalid, "empty");
  check("d", with([&](auto& m) { m.prompt = rig.prompt(600); }), Errc::kContextExceeded,
        "prompt has 600 tokens, the context holds 512");
  check("d", with([](auto& m) { m.prompt[3] = -1; }), Errc::kInvalid, "token -1");
  check("d", with([](auto& m) { m.prompt[3] = 997; }), Errc::kInvalid, "vocabulary of 997");
  check("d", with([](auto& m) { m.max_tokens = 0; }), Errc::kInvalid, "max_tokens");
  check("d", with([](auto& m) { m.generated = 20; }), Errc::kInvalid, "generated");
  check("d", with([](auto& m) {
          m.prompt.resize(1);
          m.remote_prefill = true;
        }),
        Errc::kInvalid, "nothing to hand over");
  check("d", with([](auto& m) { m.term = Term{0}; }), Errc::kStale, "term");
  check("d", with([](auto& m) { m.worker.lo ^= 1; }), Errc::kStale, "incarnation");
  check("p", with([&](auto& m) { m.worker = rig.incarnation("p"); }), Errc::kInvalid,
        "prefills only");
  GrantedBlocks grant;
  grant.blocks.resize(1);
  const auto start = rig.start_for("p", good, grant);
  check("p", start, Errc::kInvalid, "grant has 1 blocks, the prompt needs 2");
  auto wrong = start;
  wrong.worker.hi ^= 1;
  check("p", wrong, Errc::kStale, "incarnation");
  auto to_decode = start;
  to_decode.worker = rig.incarnation("d");
  check("d", to_decode, Errc::kInvalid, "decodes only");
  CHECK(rig.all_free());
}

TEST_CASE("limits refuse at once and name themselves") {
  Rig rig;
  rig.engine.blocks = 16;
  rig.options.waiting_max = 2;
  rig.options.transfers_max = 1;
  rig.add("d", Role::kBoth);
  const auto check = [&](const to_worker::Prepare& m, const std::string& words) {
    const Status why = refusal(rig, "d", m);
    CHECK(why.code == Errc::kOverloaded);
    CHECK_MESSAGE(why.message.find(words) != std::string::npos, why.message);
  };
  check(rig.prepare("d", rig.prompt(200), 200, false), "need 25 KV blocks, this worker has 16");
  rig.coordinator.send("d", rig.prepare("d", rig.prompt(20), 100, true));
  REQUIRE(rig.await_said<Grant>("d"));
  check(rig.prepare("d", rig.prompt(20), 5, true), "1 transfers are being received, the limit");
  // 8 blocks are promised to the grant; these want 16 each, so they wait.
  rig.coordinator.send("d", rig.prepare("d", rig.prompt(20), 230, false));
  rig.coordinator.send("d", rig.prepare("d", rig.prompt(20), 230, false));
  rig.world.run_for(50ms);
  check(rig.prepare("d", rig.prompt(20), 5, false), "2 sequences wait, the limit");
}

TEST_CASE("a grant never overtakes those who wait") {
  Rig rig;
  rig.engine.blocks = 16;
  rig.add("d", Role::kBoth);
  const auto first = rig.prepare("d", rig.prompt(20), 100, true);
  rig.coordinator.send("d", first);
  REQUIRE(rig.await_said<Grant>("d"));
  rig.coordinator.send("d", rig.prepare("d", rig.prompt(20), 230, false));
  rig.world.run_for(50ms);
  const Status why = refusal(rig, "d", rig.prepare("d", rig.prompt(20), 5, true));
  CHECK(why.code == Errc::kOverloaded);
  CHECK(why.message.find("KV blocks") != std::string::npos);
}

TEST_CASE("cancel frees in every stage and is always answered") {
  for (int stage = 0; stage < 40; ++stage) {
    CAPTURE(stage);
    Rig rig(static_cast<uint64_t>(stage) + 1);
    rig.options.token_budget = 16;
    rig.add("p", Role::kPrefill);
    rig.add("d", Role::kDecode);
    const auto m = rig.prepare("d", rig.prompt(120), 60, true);
    rig.coordinator.send("d", m);
    const auto grant = rig.await_grant("d", m.transfer);
    rig.coordinator.send("p", rig.start_for("p", m, grant));
    rig.world.run_for(stage * 1500us);
    const to_worker::Cancel cancel{rig.coordinator.term, m.transfer, m.attempt,
                                   error(Errc::kCancelled, "the client left")};
    rig.coordinator.send("p", cancel);
    rig.coordinator.send("d", cancel);
    REQUIRE(rig.await_said<Quiesced>("p"));
    REQUIRE(rig.await_said<Quiesced>("d"));
    rig.world.run_for(1s);
    CHECK(rig.all_free());
    CHECK(rig.no_violation());
    rig.coordinator.send("d", cancel);  // again
    REQUIRE(rig.await_said<Quiesced>("d", 2));
  }
}

TEST_CASE("Quiesced means that nothing is held, also when a step in flight outlives the cancel") {
  Rig rig;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(1000);  // 0.5 s and more
  const auto m = rig.prepare("w", rig.prompt(20), 400, false);
  rig.coordinator.send("w", m);
  rig.world.run_for(100ms);
  const to_worker::Cancel cancel{rig.coordinator.term, m.transfer, m.attempt, {}};
  rig.coordinator.send("w", cancel);
  rig.coordinator.send("w", cancel);  // repeated before the step has ended
  rig.world.run_for(50ms);
  CHECK(rig.coordinator.said<Quiesced>("w").empty());
  CHECK(w.node->worker().blocks().active == 2);
  REQUIRE(rig.await_said<Quiesced>("w"));
  CHECK(rig.coordinator.said<Quiesced>("w")[0].blocks_freed == 2);
  CHECK(rig.all_free());
}

TEST_CASE("a cancel that overtakes its request stops it") {
  Rig rig;
  rig.add("d", Role::kDecode);
  const auto m = rig.prepare("d", rig.prompt(10), 10, false);
  rig.coordinator.send("d", to_worker::Cancel{rig.coordinator.term, m.transfer, m.attempt, {}});
  const Status why = refusal(rig, "d", m);
  CHECK(why.code == Errc::kCancelled);
  CHECK(rig.all_free());
}

TEST_CASE("a grant without a sender ends with its lease; pings that name it renew it") {
  Rig rig;
  rig.add("d", Role::kDecode);
  const auto m = rig.prepare("d", rig.prompt(40), 5, true);
  rig.coordinator.send("d", m);
  REQUIRE(rig.await_said<Grant>("d"));
  rig.world.run_for(10s);
  CHECK(rig.coordinator.said<AttemptFailed>("d").empty());
  rig.coordinator.live.clear();
  rig.world.run_for(2500ms);
  CHECK(rig.coordinator.said<AttemptFailed>("d").empty());
  rig.world.run_for(1s);
  REQUIRE(rig.coordinator.said<AttemptFailed>("d").size() == 1);
  CHECK(rig.coordinator.said<AttemptFailed>("d")[0].why.message.find("lease") != std::string::npos);
  REQUIRE(rig.coordinator.said<Quiesced>("d").size() == 1);
  CHECK(rig.coordinator.said<Quiesced>("d")[0].blocks_freed == 3);
  CHECK(rig.all_free());
}

TEST_CASE("the death of either side ends the hand-off on the other") {
  for (const bool prefill_dies : {false, true}) {
    for (const sim::Death death : {sim::Death::kClosing, sim::Death::kSilent}) {
      CAPTURE(prefill_dies);
      Rig rig(7);
      rig.options.token_budget = 16;
      auto& p = rig.add("p", Role::kPrefill);
      auto& d = rig.add("d", Role::kDecode);
      const auto m = rig.prepare("d", rig.prompt(300), 5, true);
      rig.coordinator.send("d", m);
      const auto grant = rig.await_grant("d", m.transfer);
      p.engine->slow_down(20);
      rig.coordinator.send("p", rig.start_for("p", m, grant));
      rig.world.run_for(100ms);
      rig.world.crash(*(prefill_dies ? p : d).process, death);
      const std::string other = prefill_dies ? "d" : "p";
      REQUIRE(rig.await_said<AttemptFailed>(other, 1, 4s));
      CHECK(rig.coordinator.said<AttemptFailed>(other)[0].why.code == Errc::kDisconnected);
      REQUIRE(rig.await_said<Quiesced>(other, 1, 1s));
      CHECK(rig.all_free());
    }
  }
}

TEST_CASE("a wrong grant is found out by the receiver, not by the client") {
  Rig rig;
  rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto attempt_with = [&](auto change) {
    const auto m = rig.prepare("d", rig.prompt(40), 5, true);
    rig.coordinator.send("d", m);
    GrantedBlocks grant = rig.await_grant("d", m.transfer);
    change(grant);
    const size_t before = rig.coordinator.said<AttemptFailed>("p").size();
    rig.coordinator.send("p", rig.start_for("p", m, grant));
    REQUIRE(rig.await_said<AttemptFailed>("p", before + 1));
    rig.coordinator.send("d", to_worker::Cancel{rig.coordinator.term, m.transfer, m.attempt, {}});
    rig.world.run_for(100ms);
    CHECK(rig.coordinator.tokens("d", m.transfer).empty());
    CHECK(rig.all_free());
    return rig.coordinator.said<AttemptFailed>("p").back().why.message;
  };
  CHECK(attempt_with([](auto& g) { g.key.lo ^= 1; }).find("signed") != std::string::npos);
  CHECK(attempt_with([](auto& g) { g.decode.lo ^= 1; }).find("incarnation") != std::string::npos);
  CHECK(attempt_with([](auto& g) { g.blocks[1].generation = Generation{9}; }).find("generation") !=
        std::string::npos);
  CHECK(attempt_with([](auto& g) { g.endpoint.port = 1; }).find("cannot connect") !=
        std::string::npos);
}

TEST_CASE("the deadline of a request ends it in every stage") {
  for (const auto deadline : {1ms, 10ms, 30ms, 60ms, 100ms, 150ms}) {
    Rig rig;
    rig.options.token_budget = 16;
    rig.add("d", Role::kDecode).engine->slow_down(3);
    auto m = rig.prepare("d", rig.prompt(300), 200, false);
    m.deadline = deadline;
    rig.coordinator.send("d", m);
    REQUIRE(rig.await_said<AttemptFailed>("d"));
    CHECK(rig.coordinator.said<AttemptFailed>("d")[0].why.code == Errc::kDeadline);
    REQUIRE(rig.await_said<Quiesced>("d"));
    CHECK(rig.all_free());
  }
}

}  // namespace
}  // namespace headrace::worker

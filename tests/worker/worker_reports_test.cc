#include <doctest/doctest.h>

#include "tests/worker/worker_fixture.h"
#include "worker/worker.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

// Keeps what it is told.
struct Eyes final : Probes {
  void step(const StepReport& r) override { steps.push_back(r); }
  void handoff(const HandoffReport& r) override { handoffs.push_back(r); }
  void gauges(const WorkerGauges& g) override {
    last = g;
    ++sweeps;
    short_ever = short_ever || g.kv_short;
    slack_most = std::max(slack_most, g.slack_tokens);
  }
  void prefix(uint32_t asked, uint32_t hit) override { prefixes.emplace_back(asked, hit); }
  void preempted() override { ++preemptions; }
  void failed(Errc why) override { failures.push_back(why); }
  void refused(Errc why) override { refusals.push_back(why); }
  std::vector<StepReport> steps;
  std::vector<HandoffReport> handoffs;
  std::vector<std::pair<uint32_t, uint32_t>> prefixes;
  std::vector<Errc> failures;
  std::vector<Errc> refusals;
  WorkerGauges last;
  int sweeps = 0;
  int preemptions = 0;
  bool short_ever = false;
  uint64_t slack_most = 0;
};

TEST_CASE("every step is reported with its kind, rows, seconds and gap") {
  Rig rig;
  const auto eyes = std::make_shared<Eyes>();
  rig.options.probes = eyes;
  rig.options.token_budget = 32;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(70), 10, false);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  rig.world.run_for(1s);
  REQUIRE(eyes->steps.size() == w.node->worker().counters().steps);
  CHECK(eyes->steps[0].kind == StepKind::kPrefill);
  CHECK(eyes->steps[0].prefill_tokens == 32);
  CHECK(eyes->steps[0].gap == 0);
  CHECK(eyes->steps[0].seconds > 0);
  CHECK(eyes->steps[0].working_set >= 2 * 256);
  CHECK(eyes->steps.back().kind == StepKind::kDecode);
  CHECK(eyes->steps.back().decode_rows == 1);
  CHECK(eyes->steps.back().gap < 0.01);
  // Nothing to do is no gap.
  const auto n = rig.prepare("w", rig.prompt(20), 2, false);
  const size_t before = eyes->steps.size();
  rig.coordinator.send("w", n);
  REQUIRE(rig.await_finish("w", n.transfer));
  CHECK(eyes->steps[before].gap == 0);
  CHECK(eyes->prefixes == std::vector<std::pair<uint32_t, uint32_t>>{{70, 0}, {20, 0}});
}

// A prepared step needs no strand to begin, so this one may hear of an end late and of the next in
// time: what lies between steps is not counted twice for that.
TEST_CASE("gaps and steps add up to the time that passed") {
  Rig rig;
  const auto eyes = std::make_shared<Eyes>();
  rig.options.probes = eyes;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(5), 400, false);
  rig.coordinator.send("w", m);
  Instant first{}, last{};
  while (eyes->steps.size() < 400) {
    const size_t before = eyes->steps.size();
    REQUIRE(rig.world.run_while([&] { return eyes->steps.size() == before; }, 1s));
    w.engine->slow_down(before % 2 == 0 ? 1.5 : 0.5);  // as if heard too late, too early
    last = rig.world.now();
    if (before == 0) first = last;
  }
  CHECK(w.node->worker().counters().followed == 399);
  double told = 0;
  for (size_t i = 1; i < 400; ++i) told += eyes->steps[i].seconds + eyes->steps[i].gap;
  const double passed = std::chrono::duration<double>(last - first).count();
  CHECK(told == doctest::Approx(passed).epsilon(0.01));
}

TEST_CASE("gauges tell who runs, waits for blocks and where there is slack") {
  Rig rig;
  const auto eyes = std::make_shared<Eyes>();
  rig.options.probes = eyes;
  rig.engine.blocks = 40;
  auto& w = rig.add("w", Role::kBoth);
  rig.world.run_for(1s);
  CHECK(eyes->sweeps >= 9);
  CHECK(eyes->last.blocks.free == 40);
  CHECK(!eyes->last.kv_short);
  w.engine->slow_down(50);
  for (int i = 0; i < 3; ++i) {
    rig.coordinator.send("w", rig.prepare("w", rig.prompt(20), 250, false));  // 17 blocks each
  }
  rig.world.run_for(1s);
  CHECK(eyes->last.running == 2);
  CHECK(eyes->last.waiting == 1);
  CHECK(eyes->last.kv_short);
  CHECK(eyes->slack_most > 0);
  CHECK(eyes->slack_most < 3 * 16);
  rig.world.run_for(60s);
  CHECK(!eyes->last.kv_short);
  CHECK(eyes->last.running == 0);
  CHECK(eyes->last.blocks.free + eyes->last.blocks.cached == 40);
}

TEST_CASE("a grant refused for want of blocks shows once") {
  Rig rig;
  const auto eyes = std::make_shared<Eyes>();
  rig.options.probes = eyes;
  rig.engine.blocks = 16;
  rig.add("w", Role::kBoth);
  rig.coordinator.send("w", rig.prepare("w", rig.prompt(20), 200, true));
  REQUIRE(rig.await_said<Grant>("w"));
  rig.coordinator.send("w", rig.prepare("w", rig.prompt(20), 200, true));
  REQUIRE(rig.await_said<Refuse>("w"));
  rig.world.run_for(150ms);
  CHECK(eyes->short_ever);
  CHECK(eyes->refusals == std::vector{Errc::kOverloaded});
  rig.world.run_for(200ms);
  CHECK(!eyes->last.kv_short);
  CHECK(eyes->last.transfers == 1);
}

TEST_CASE("hand-offs are reported on both sides, with their bytes and seconds") {
  Rig rig;
  const auto p_eyes = std::make_shared<Eyes>();
  const auto d_eyes = std::make_shared<Eyes>();
  rig.options.probes = p_eyes;
  rig.add("p", Role::kPrefill);
  rig.options.probes = d_eyes;
  rig.add("d", Role::kDecode);
  const auto hand = [&](bool right) {
    const auto m = rig.prepare("d", rig.prompt(100), 5, true);
    rig.coordinator.send("d", m);
    auto grant = rig.await_grant("d", m.transfer);
    if (!right) grant.blocks[0].generation = Generation{99};
    rig.coordinator.send("p", rig.start_for("p", m, grant));
    rig.world.run_for(1s);
  };
  hand(true);
  REQUIRE(p_eyes->handoffs.size() == 1);
  REQUIRE(d_eyes->handoffs.size() == 1);
  for (const auto& [eyes, sent] : {std::pair{p_eyes, true}, std::pair{d_eyes, false}}) {
    const HandoffReport& r = eyes->handoffs[0];
    CHECK(r.sent == sent);
    CHECK(r.status.ok());
    CHECK(r.bytes == 7 * 256);
    CHECK(r.wait > 0);
    CHECK(r.wire >= 0);
    CHECK(r.wait <= r.total);
    CHECK(r.total < 1);
  }
  hand(false);
  REQUIRE(p_eyes->handoffs.size() == 2);
  REQUIRE(d_eyes->handoffs.size() == 2);
  CHECK(!p_eyes->handoffs[1].status.ok());
  CHECK(!d_eyes->handoffs[1].status.ok());
  CHECK(p_eyes->failures.size() == 1);
  CHECK(d_eyes->failures.size() == 1);
}

TEST_CASE("hand-offs that were cancelled or ran out of time are reported on both sides, once") {
  for (const Errc how : {Errc::kCancelled, Errc::kDeadline, Errc::kDisconnected}) {
    CAPTURE(name(how));
    Rig rig;
    const auto p_eyes = std::make_shared<Eyes>();
    const auto d_eyes = std::make_shared<Eyes>();
    rig.options.probes = p_eyes;
    auto& p = rig.add("p", Role::kPrefill);
    rig.options.probes = d_eyes;
    rig.add("d", Role::kDecode);
    p.engine->slow_down(1000);  // it is still computing
    auto m = rig.prepare("d", rig.prompt(100), 5, true);
    if (how == Errc::kDeadline) m.deadline = 1s;
    rig.coordinator.send("d", m);
    auto start = rig.start_for("p", m, rig.await_grant("d", m.transfer));
    start.deadline = m.deadline;
    rig.coordinator.send("p", start);
    rig.world.run_for(200ms);
    CHECK(p_eyes->handoffs.empty());
    for (const std::string worker : {"p", "d"}) {
      if (how == Errc::kCancelled)
        rig.coordinator.send(worker, to_worker::Cancel{rig.coordinator.term, m.transfer, m.attempt,
                                                       error(Errc::kCancelled, "enough")});
      if (how == Errc::kDisconnected) rig.coordinator.drop_link(worker);
    }
    rig.world.run_for(3s);
    for (const auto& eyes : {p_eyes, d_eyes}) {
      REQUIRE(eyes->handoffs.size() == 1);
      const Errc told = eyes->handoffs[0].status.code;
      // Whoever notices second may hear it from its peer.
      CHECK((told == Errc::kCancelled || told == Errc::kDisconnected));
    }
    const bool own = p_eyes->handoffs[0].status.code != Errc::kDisconnected ||
                     d_eyes->handoffs[0].status.code != Errc::kDisconnected;
    CHECK(own);
    // The request's own deadline is no failure of a worker.
    if (how == Errc::kDeadline) CHECK(p_eyes->failures.size() + d_eyes->failures.size() <= 1);
  }
}

TEST_CASE("peers are told the address that was set for them, with the port that was found") {
  Rig rig;
  rig.options.kv_advertise = Endpoint{"outside", 0};
  rig.add("d", Role::kDecode);
  const Endpoint kv = rig.coordinator.registration("d").kv;
  CHECK(kv.host == "outside");
  CHECK(kv.port != 0);
  rig.options.kv_advertise = Endpoint{"outside", 777};
  rig.add("e", Role::kDecode);
  CHECK(rig.coordinator.registration("e").kv == Endpoint{"outside", 777});
  const auto m = rig.prepare("e", rig.prompt(40), 5, true);
  rig.coordinator.send("e", m);
  CHECK(rig.await_grant("e", m.transfer).endpoint == Endpoint{"outside", 777});
}

}  // namespace
}  // namespace headrace::worker

#include <doctest/doctest.h>

#include "tests/worker/worker_fixture.h"
#include "worker/worker.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

struct DrainRig : Rig {
  void drain(sim::SimWorker& w, Duration grace) {
    w.node->drain(grace, [this] { ended = world.now(); });
    began = world.now();
    world.run_for(5ms);
  }
  bool await_end(Duration most) {
    return world.run_while([&] { return !ended.has_value(); }, most);
  }
  Instant began{};
  std::optional<Instant> ended;
};

TEST_CASE("a worker with nothing to do ends at once, and says that it drains") {
  DrainRig rig;
  auto& w = rig.add("w", Role::kBoth);
  rig.drain(w, 30s);
  REQUIRE(rig.await_end(1s));
  CHECK(*rig.ended - rig.began <= 300ms);
  CHECK(rig.coordinator.said<Beat>("w").back().draining);
}

TEST_CASE("what runs is finished, what comes is refused") {
  DrainRig rig;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(20);  // 10 ms a step
  const auto m = rig.prepare("w", rig.prompt(30), 200, false);
  rig.coordinator.send("w", m);
  rig.world.run_for(50ms);
  rig.drain(w, 30s);
  const auto late = rig.prepare("w", rig.prompt(30), 5, false);
  rig.coordinator.send("w", late);
  REQUIRE(rig.await_said<Refuse>("w"));
  const Status why = rig.coordinator.said<Refuse>("w")[0].why;
  CHECK(why.code == Errc::kUnavailable);
  CHECK(why.message == "this worker drains");
  CHECK(!rig.ended);
  REQUIRE(rig.await_end(20s));
  CHECK(rig.coordinator.finished("w", m.transfer));
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  CHECK(rig.coordinator.said<AttemptFailed>("w").empty());
  CHECK(rig.all_free());
}

TEST_CASE("hand-offs under way are finished on both sides") {
  DrainRig rig;
  rig.options.token_budget = 16;
  auto& p = rig.add("p", Role::kPrefill);
  auto& d = rig.add("d", Role::kDecode);
  const auto m = rig.prepare("d", rig.prompt(300), 20, true);
  rig.coordinator.send("d", m);
  const auto grant = rig.await_grant("d", m.transfer);
  rig.coordinator.send("p", rig.start_for("p", m, grant));
  rig.world.run_for(5ms);
  int ends = 0;
  p.node->drain(10s, [&] { ++ends; });
  d.node->drain(10s, [&] { ++ends; });
  rig.world.run_for(10ms);
  rig.coordinator.send("p", rig.start_for("p", rig.prepare("d", rig.prompt(30), 5, true), grant));
  REQUIRE(rig.await_said<Refuse>("p"));
  REQUIRE(rig.await_finish("d", m.transfer));
  CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
  REQUIRE(rig.world.run_while([&] { return ends < 2; }, 5s));
  CHECK(rig.all_free());
}

TEST_CASE("at the end of the grace the rest is given back to be replayed elsewhere") {
  DrainRig rig;
  rig.engine.blocks = 32;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(200);  // 100 ms a step
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(rig.prepare("w", rig.prompt(30), 250, false));  // one of them waits
    rig.coordinator.send("w", all.back());
  }
  rig.world.run_for(500ms);
  rig.drain(w, 2s);
  REQUIRE(rig.await_end(10s));
  CHECK(*rig.ended - rig.began >= 2s);
  CHECK(*rig.ended - rig.began <= 3200ms);
  CHECK(rig.coordinator.said<AttemptFailed>("w").size() == 3);
  for (const auto& f : rig.coordinator.said<AttemptFailed>("w")) {
    CHECK(f.why.code == Errc::kUnavailable);
  }
  CHECK(rig.coordinator.said<Quiesced>("w").size() == 3);
  CHECK(rig.all_free());
}

TEST_CASE("a step that does not end does not keep the process") {
  DrainRig rig;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(100000);  // 50 s a step
  rig.coordinator.send("w", rig.prepare("w", rig.prompt(30), 25, false));
  rig.world.run_for(50ms);
  rig.drain(w, 1s);
  REQUIRE(rig.await_end(10s));
  CHECK(*rig.ended - rig.began <= 2500ms);
}

TEST_CASE("asked again, the shorter grace holds and both are told") {
  DrainRig rig;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(200);
  rig.coordinator.send("w", rig.prepare("w", rig.prompt(30), 400, false));
  rig.world.run_for(200ms);
  int ends = 0;
  w.node->drain(60s, [&] { ++ends; });
  rig.world.run_for(100ms);
  w.node->drain(Duration{0}, [&] { ++ends; });
  w.node->drain(10s, [&] { ++ends; });
  REQUIRE(rig.world.run_while([&] { return ends < 3; }, 2s));
  CHECK(rig.all_free());
}

TEST_CASE("a new registration still drains") {
  DrainRig rig;
  auto& w = rig.add("w", Role::kBoth);
  rig.drain(w, 30s);
  rig.coordinator.drop_link("w");
  rig.world.run_for(2s);
  REQUIRE(rig.coordinator.registered("w"));
  CHECK(rig.coordinator.said<Beat>("w").back().draining);
}

}  // namespace
}  // namespace headrace::worker

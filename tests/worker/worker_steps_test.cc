#include "worker/worker.h"

#include <doctest/doctest.h>

#include "tests/worker/worker_fixture.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

TEST_CASE("a local request is answered as an undisturbed engine would") {
  for (const uint32_t budget : {16u, 64u, 512u}) {
    for (const uint32_t n : {1u, 2u, 15u, 16u, 17u, 33u, 100u}) {
      CAPTURE(budget);
      CAPTURE(n);
      Rig rig;
      rig.options.token_budget = budget;
      const auto& w = rig.add("w", Role::kBoth);
      const auto m = rig.prepare("w", rig.prompt(n), 20, false);
      rig.coordinator.send("w", m);
      REQUIRE(rig.await_finish("w", m.transfer));
      CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
      CHECK(rig.coordinator.runs("w", m.transfer).back().finish == Finish::kLength);
      CHECK(rig.coordinator.runs("w", m.transfer).front().position == 0);
      CHECK(rig.all_free());
      CHECK(w.engine->violations().empty());
      CHECK(w.node->worker().counters().steps >= 20 + (n - 1) / budget);
    }
  }
}

// How many steps had begun when each one was accounted for.
struct Begun : Probes {
  void step(const StepReport&) override { begun.push_back(engine->steps()); }
  const sim::SimEngine* engine = nullptr;
  std::vector<uint64_t> begun;
};

TEST_CASE("a step is told of when the next one has begun") {
  Rig rig;
  const auto probes = std::make_shared<Begun>();
  rig.options.probes = probes;
  const auto& w = rig.add("w", Role::kBoth);
  probes->engine = w.engine.get();
  const auto m = rig.prepare("w", rig.prompt(3), 8, false);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  // Of the last one there is no next.
  CHECK(probes->begun == std::vector<uint64_t>{2, 3, 4, 5, 6, 7, 8, 8});
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  CHECK(rig.all_free());
}

TEST_CASE("an end token ends the answer and is not part of it") {
  Rig rig;
  rig.add("w", Role::kBoth);
  auto m = rig.prepare("w", rig.prompt(10), 50, false);
  const Token end = rig.expected(m)[7];
  m.end_tokens = {end};
  Finish finish{};
  const auto want = rig.expected(m, &finish);
  REQUIRE(finish == Finish::kStop);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.tokens("w", m.transfer) == want);
  const auto last = rig.coordinator.runs("w", m.transfer).back();
  CHECK(last.finish == Finish::kStop);
  CHECK(last.ids.empty());
  CHECK(last.position == want.size());
}

TEST_CASE("the answer stops at the end of the context") {
  Rig rig;
  rig.engine.context = 40;
  rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(30), 1000, false);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.tokens("w", m.transfer).size() == 10);
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
}

TEST_CASE("a replay goes on at the index where the first attempt stopped") {
  Rig rig;
  rig.add("w", Role::kBoth);
  auto m = rig.prepare("w", rig.prompt(20), 30, false);
  m.sampling.seed = 5;
  const auto whole = rig.expected(m);
  m.prompt.insert(m.prompt.end(), whole.begin(), whole.begin() + 12);
  m.generated = 12;
  m.max_tokens = 18;
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.runs("w", m.transfer).front().position == 12);
  CHECK(rig.coordinator.tokens("w", m.transfer) ==
        std::vector<Token>(whole.begin() + 12, whole.end()));
}

TEST_CASE("many requests in one batch give what each gives alone, with the same KV digest") {
  std::vector<Digest> alone;
  std::vector<Digest> together;
  for (const bool batched : {false, true}) {
    Rig rig;
    rig.engine.blocks = 400;
    rig.add("w", Role::kBoth);
    std::vector<to_worker::Prepare> all;
    for (int i = 0; i < 16; ++i) {
      auto m = rig.prepare("w", rig.prompt(5 + 11 * static_cast<uint32_t>(i)), 25, false);
      m.kv_digest = true;
      all.push_back(m);
    }
    for (const auto& m : all) {
      rig.coordinator.send("w", m);
      if (!batched) REQUIRE(rig.await_finish("w", m.transfer));
    }
    for (const auto& m : all) {
      REQUIRE(rig.await_finish("w", m.transfer));
      CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
      (batched ? together : alone).push_back(rig.coordinator.runs("w", m.transfer).back().kv);
    }
    CHECK(rig.all_free());
    CHECK(rig.no_violation());
  }
  CHECK(alone == together);
  CHECK(alone[0] != alone[1]);
  CHECK(static_cast<bool>(alone[0]));
}

TEST_CASE("when blocks run out the youngest is recomputed and nothing changes") {
  Rig rig;
  rig.engine.blocks = 40;  // 640 tokens; each wants up to 420
  const auto& w = rig.add("w", Role::kBoth);
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 6; ++i) all.push_back(rig.prepare("w", rig.prompt(20), 400, false));
  for (const auto& m : all) rig.coordinator.send("w", m);
  for (const auto& m : all) {
    REQUIRE(rig.await_finish("w", m.transfer, 60s));
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  }
  CHECK(w.node->worker().counters().preempted > 0);
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
}

TEST_CASE("numbers that are none end the request, not the worker") {
  Rig rig;
  auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(5), 5, false);
  w.engine->poison(true);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.runs("w", m.transfer).back().finish == Finish::kError);
  CHECK(rig.coordinator.runs("w", m.transfer).back().status.code == Errc::kNumeric);
  w.engine->poison(false);
  const auto n = rig.prepare("w", rig.prompt(5), 5, false);
  rig.coordinator.send("w", n);
  REQUIRE(rig.await_finish("w", n.transfer));
  CHECK(rig.coordinator.tokens("w", n.transfer) == rig.expected(n));
}

TEST_CASE("a step that does not end fails what it carries; its blocks stay held until it does") {
  Rig rig;
  rig.options.step_max = 2s;
  auto& w = rig.add("w", Role::kBoth);
  w.engine->slow_down(20000);  // 10 s a step
  const auto m = rig.prepare("w", rig.prompt(5), 5, false);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_said<AttemptFailed>("w"));
  CHECK(rig.coordinator.said<AttemptFailed>("w")[0].why.code == Errc::kInternal);
  CHECK(!rig.all_free());
  CHECK(rig.coordinator.said<Quiesced>("w").empty());
  REQUIRE(rig.await_said<Quiesced>("w"));
  CHECK(rig.coordinator.said<Quiesced>("w")[0].blocks_freed == 1);
  CHECK(rig.all_free());
}

TEST_CASE("how long a step may take follows what the machine was measured to do") {
  struct Case {
    double read;     // bytes a second; 0: not measured
    Duration takes;  // of the one step
    bool fails;
  };
  // The step of this prompt reads the KV of 5 tokens, 80 bytes. The bounds: 5 s, 30 s, and twice
  // what was predicted.
  for (const Case& c : {Case{0, 25s, false}, Case{1e9, 25s, true}, Case{4, 35s, false},
                        Case{0, 35s, true}, Case{4, 45s, true}}) {
    CAPTURE(c.read);
    CAPTURE(c.takes / 1s);
    Rig rig;
    if (c.read > 0) rig.options.limits.read = {{1, c.read}};
    auto& w = rig.add("w", Role::kBoth);
    const auto m = rig.prepare("w", rig.prompt(5), 1, false);
    w.engine->slow_down(static_cast<double>(c.takes / 1us) / 600);  // a step of 5 rows: 600 us
    rig.coordinator.send("w", m);
    rig.world.run_for(c.takes - 1s);
    CHECK(rig.coordinator.said<AttemptFailed>("w").size() == (c.fails ? 1 : 0));
    rig.world.run_for(5s);
    CHECK(rig.coordinator.finished("w", m.transfer) == !c.fails);
    CHECK(rig.all_free());
  }
}

TEST_CASE("log-probabilities come with each token to those who asked, and to nobody else") {
  Rig rig;
  rig.add("w", Role::kBoth);
  auto asks = rig.prepare("w", rig.prompt(20), 12, false);
  asks.sampling.logprobs = 3;
  const auto silent = rig.prepare("w", rig.prompt(20), 12, false);  // in the same batch
  auto stops = rig.prepare("w", rig.prompt(20), 12, false);
  stops.sampling.logprobs = 1;
  stops.end_tokens = {rig.expected(stops)[4]};
  for (const auto& m : {asks, silent, stops}) rig.coordinator.send("w", m);
  for (const auto& m : {asks, silent, stops}) REQUIRE(rig.await_finish("w", m.transfer));
  size_t told = 0;
  for (const auto& run : rig.coordinator.runs("w", asks.transfer)) {
    REQUIRE(run.logprobs.size() == run.ids.size());
    for (size_t i = 0; i < run.ids.size(); ++i, ++told)
      CHECK(run.logprobs[i] == sim::sim_logprobs(run.ids[i], 3));
  }
  CHECK(told == 12);
  for (const auto& run : rig.coordinator.runs("w", silent.transfer)) CHECK(run.logprobs.empty());
  const auto last = rig.coordinator.runs("w", stops.transfer).back();
  CHECK(last.finish == Finish::kStop);
  CHECK(last.logprobs.empty());  // the end is no token of the answer
}

TEST_CASE("a silent coordinator pauses the steps, and its next word goes on with them") {
  Rig rig;
  rig.options.pause_after = 3s;
  rig.options.forget_after = 10s;
  const auto& w = rig.add("w", Role::kBoth);
  rig.coordinator.pinging = false;
  rig.world.run_for(3500ms);
  const auto& counters = w.node->worker().counters();
  const auto m = rig.prepare("w", rig.prompt(5), 480, false);
  w.engine->slow_down(100);  // 50 ms a step
  rig.coordinator.send("w", m);
  rig.world.run_for(5s);
  const uint64_t steps = counters.steps;
  CHECK(steps > 40);
  rig.world.run_for(1s);
  CHECK(counters.steps == steps);
  rig.coordinator.pinging = true;
  REQUIRE(rig.await_finish("w", m.transfer, 60s));
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
}

}  // namespace
}  // namespace headrace::worker

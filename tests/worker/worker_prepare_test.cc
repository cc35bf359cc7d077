#include <doctest/doctest.h>

#include <map>
#include <set>

#include "tests/worker/worker_fixture.h"
#include "worker/worker.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

// The world has one thread, which is the test's: between two events it may speak to the actor.
Worker& actor(const sim::SimWorker& w) { return const_cast<Worker&>(w.node->worker()); }

const WorkerCounters& counters(const sim::SimWorker& w) { return w.node->worker().counters(); }

bool await_prepared(Rig& rig, const sim::SimWorker& w) {
  return rig.world.run_while([&] { return !w.engine->prepared(); }, 5s);
}

// A prepared step has begun, and the worker does not know yet that the one before is over.
bool await_begun(Rig& rig, const sim::SimWorker& w) {
  return rig.world.run_while([&] { return w.engine->steps() < counters(w).steps + 2; }, 5s);
}

to_worker::Cancel cancel(const Rig& rig, const to_worker::Prepare& m) {
  return {rig.coordinator.term, m.transfer, m.attempt, {}};
}

TEST_CASE("steps follow each other with the same tokens and the same KV as one by one") {
  std::map<bool, std::vector<Digest>> digests;
  for (const bool prepare : {true, false}) {
    Rig rig;
    rig.options.prepare = prepare;
    rig.options.token_budget = 32;
    rig.engine.blocks = 200;
    const auto& w = rig.add("w", Role::kBoth);
    std::vector<to_worker::Prepare> all;
    for (const uint32_t n : {3u, 16u, 17u, 100u}) {
      all.push_back(rig.prepare("w", rig.prompt(n), 10 + n, false));
      all.back().kv_digest = true;
      rig.coordinator.send("w", all.back());
    }
    for (const auto& m : all) {
      REQUIRE(rig.await_finish("w", m.transfer));
      CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
      digests[prepare].push_back(rig.coordinator.runs("w", m.transfer).back().kv);
    }
    if (prepare) CHECK(counters(w).followed > counters(w).steps / 2);
    if (!prepare) CHECK(counters(w).followed == 0);
    CHECK(rig.all_free());
    CHECK(rig.no_violation());
  }
  CHECK(digests[true] == digests[false]);
}

TEST_CASE("one request alone has all steps but the first prepared, to its last token") {
  Rig rig;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(3), 60, false);
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  CHECK(counters(w).steps == 60);
  CHECK(counters(w).followed == 59);
  CHECK(w.engine->steps() == 60);
  CHECK(rig.all_free());
}

TEST_CASE("an end token drops the prepared step; the others go on") {
  Rig rig;
  const auto& w = rig.add("w", Role::kBoth);
  auto ends = rig.prepare("w", rig.prompt(10), 50, false);
  ends.end_tokens = {rig.expected(ends)[7]};
  const auto other = rig.prepare("w", rig.prompt(10), 30, false);
  rig.coordinator.send("w", ends);
  rig.coordinator.send("w", other);
  REQUIRE(rig.await_finish("w", other.transfer));
  for (const auto& m : {ends, other})
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  CHECK(rig.coordinator.runs("w", ends.transfer).back().finish == Finish::kStop);
  CHECK(w.engine->steps() == counters(w).steps);
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
}

TEST_CASE("cancelled before the prepared step has begun, a request ends with the step in flight") {
  Rig rig;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(40), 400, false);
  rig.coordinator.send("w", m);
  REQUIRE(await_prepared(rig, w));
  const uint64_t begun = w.engine->steps();
  actor(w).on(cancel(rig, m));
  CHECK_FALSE(w.engine->prepared());
  REQUIRE(rig.await_said<Quiesced>("w"));
  CHECK(w.engine->steps() == begun);
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
}

// The blocks suffice for one request: the next one gets those of the cancelled one.
TEST_CASE(
    "over when the prepared step has begun, a request keeps its blocks until that has ended") {
  for (const bool cancelled : {true, false}) {
    CAPTURE(cancelled);
    Rig rig;
    rig.engine.blocks = 8;
    const auto& w = rig.add("w", Role::kBoth);
    const auto first = rig.prepare("w", rig.prompt(90), 38, false);
    rig.coordinator.send("w", first);
    REQUIRE(await_begun(rig, w));
    const auto second = rig.prepare("w", rig.prompt(100), 28, false);
    if (cancelled) {
      actor(w).on(cancel(rig, first));
      actor(w).on(second);
    } else {
      actor(w).on(LinkDown{});
    }
    const uint64_t steps = counters(w).steps;
    REQUIRE(rig.world.run_while([&] { return counters(w).steps == steps; }, 1s));
    CHECK(rig.coordinator.said<Quiesced>("w").empty());
    CHECK(w.node->worker().blocks().active == 6);
    REQUIRE(rig.world.run_while([&] { return counters(w).steps == steps + 1; }, 1s));
    CHECK(counters(w).steps == steps + 2);
    if (cancelled) {
      REQUIRE(rig.await_finish("w", second.transfer));
      CHECK(rig.coordinator.tokens("w", second.transfer) == rig.expected(second));
      CHECK(rig.coordinator.said<Quiesced>("w").size() == 1);
    }
    CHECK(rig.all_free());
    CHECK(rig.no_violation());
  }
}

TEST_CASE("who arrives is in the next step, unless that has begun; then in the one after") {
  for (const bool begun : {false, true}) {
    CAPTURE(begun);
    Rig rig;
    const auto& w = rig.add("w", Role::kBoth);
    const auto first = rig.prepare("w", rig.prompt(5), 40, false);
    rig.coordinator.send("w", first);
    REQUIRE((begun ? await_begun(rig, w) : await_prepared(rig, w)));
    const auto second = rig.prepare("w", rig.prompt(5), 20, false);
    actor(w).on(second);
    CHECK_FALSE(w.engine->prepared());
    const uint64_t now = w.engine->steps();
    const auto carried = [&] {
      for (const auto& [key, s] : w.node->worker().held())
        if (s.transfer == second.transfer && s.in_step > 0) return true;
      return false;
    };
    REQUIRE(rig.world.run_while([&] { return !carried(); }, 1s));
    CHECK(w.engine->steps() == now + 1);
    for (const auto& m : {first, second}) {
      REQUIRE(rig.await_finish("w", m.transfer));
      CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
    }
    CHECK(rig.all_free());
  }
}

TEST_CASE("what waits and what is preempted come as soon as without prepared steps") {
  struct Sum {
    uint64_t steps, preempted;
    bool operator==(const Sum&) const = default;
  };
  for (const uint32_t blocks : {16u, 24u, 40u}) {
    CAPTURE(blocks);
    std::map<bool, Sum> sums;
    for (const bool prepare : {true, false}) {
      Rig rig;
      rig.options.prepare = prepare;
      rig.engine.blocks = blocks;
      const auto& w = rig.add("w", Role::kBoth);
      std::vector<to_worker::Prepare> all;
      for (uint32_t i = 0; i < 7; ++i)
        all.push_back(
            rig.prepare("w", rig.prompt(i < 3 ? 60 : 20), i < 3 ? 9 + 7 * i : 230, false));
      for (const auto& m : all) actor(w).on(m);
      for (const auto& m : all) {
        REQUIRE(rig.await_finish("w", m.transfer, 60s));
        CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
      }
      sums[prepare] = {counters(w).steps, counters(w).preempted};
      if (prepare) CHECK(counters(w).followed > counters(w).steps / 2);
      CHECK(rig.all_free());
      CHECK(rig.no_violation());
    }
    CHECK(sums[true] == sums[false]);
  }
}

TEST_CASE("a prepared step that does not end fails what it carries, from its own beginning on") {
  Rig rig;
  rig.options.step_max = 2s;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(5), 5, false);
  w.engine->slow_down(2500);  // 1.5 s for the first
  rig.coordinator.send("w", m);
  REQUIRE(await_prepared(rig, w));
  w.engine->slow_down(20000);  // 10 s for the prepared one
  REQUIRE(await_begun(rig, w));
  rig.world.run_for(1900ms);
  CHECK(rig.coordinator.said<AttemptFailed>("w").empty());
  rig.world.run_for(300ms);
  REQUIRE(rig.coordinator.said<AttemptFailed>("w").size() == 1);
  CHECK(rig.coordinator.said<AttemptFailed>("w")[0].why.code == Errc::kInternal);
  CHECK(rig.coordinator.said<Quiesced>("w").empty());
  REQUIRE(rig.await_said<Quiesced>("w"));
  CHECK(w.engine->steps() == 2);
  CHECK(rig.all_free());
}

TEST_CASE("penalties want the token itself; biases do not") {
  for (const bool penalty : {true, false}) {
    Rig rig;
    const auto& w = rig.add("w", Role::kBoth);
    auto m = rig.prepare("w", rig.prompt(5), 20, false);
    m.sampling.bias = {{7, 1.0f}};
    if (penalty) m.sampling.presence_penalty = 0.5f;
    rig.coordinator.send("w", m);
    REQUIRE(rig.await_finish("w", m.transfer));
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
    CHECK(counters(w).followed == (penalty ? 0 : 19));
  }
}

TEST_CASE("a digest is made while no step runs") {
  Rig rig;
  const auto& w = rig.add("w", Role::kBoth);
  auto short_one = rig.prepare("w", rig.prompt(5), 10, false);
  short_one.kv_digest = true;
  const auto other = rig.prepare("w", rig.prompt(5), 30, false);
  actor(w).on(other);
  actor(w).on(short_one);
  REQUIRE(rig.await_finish("w", other.transfer));
  CHECK(counters(w).followed == counters(w).steps - 2);  // the first, and the one after the digest
  CHECK(rig.coordinator.tokens("w", other.transfer) == rig.expected(other));
  CHECK(rig.all_free());
}

TEST_CASE(
    "who waits for the blocks of an answer that reaches its length begins with the next step") {
  std::map<bool, uint64_t> steps;
  for (const bool prepare : {true, false}) {
    Rig rig;
    rig.options.prepare = prepare;
    rig.engine.blocks = 16;
    const auto& w = rig.add("w", Role::kBoth);
    const auto ends = rig.prepare("w", rig.prompt(60), 10, false);     // 5 blocks
    const auto goes_on = rig.prepare("w", rig.prompt(20), 40, false);  // 4
    const auto waits = rig.prepare("w", rig.prompt(100), 48, false);   // 10
    for (const auto& m : {ends, goes_on, waits}) actor(w).on(m);
    for (const auto& m : {ends, goes_on, waits}) {
      REQUIRE(rig.await_finish("w", m.transfer));
      CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
    }
    steps[prepare] = counters(w).steps;
  }
  CHECK(steps[false] == 10 + 48);
  CHECK(steps[true] == steps[false]);
}

// The last token of the one begins a block that was promised and is never needed; just then the
// other one has outgrown its promise.
TEST_CASE("a prepared step takes no block that is promised to an answer about to end") {
  for (uint64_t arrives = 238; arrives < 250; ++arrives) {
    CAPTURE(arrives);
    Rig rig;
    rig.engine.blocks = 20;
    const auto& w = rig.add("w", Role::kBoth);
    const auto grows = rig.prepare("w", rig.prompt(16), 300, false);  // 17 blocks promised
    const auto ends = rig.prepare("w", rig.prompt(20), 13, false);    // 3
    auto asks = rig.prepare("w", rig.prompt(310), 1, true);           // who counts all promises
    actor(w).on(grows);
    REQUIRE(rig.world.run_while([&] { return counters(w).steps < arrives; }, 5s));
    actor(w).on(ends);
    uint64_t seen = 0;
    REQUIRE(rig.world.run_while(
        [&] {
          if (w.engine->prepared() && seen != counters(w).steps) actor(w).on(asks);
          if (w.engine->prepared()) seen = counters(w).steps;
          return counters(w).steps < 270;
        },
        5s));
    CHECK(counters(w).refused > 0);
    for (const auto& m : {grows, ends}) {
      REQUIRE(rig.await_finish("w", m.transfer));
      CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
    }
    CHECK(rig.all_free());
  }
}

// Each block that it finds known it gives up for that one, but not while a step reads it.
TEST_CASE("twins share their blocks as they grow") {
  Rig rig;
  rig.engine.blocks = 100;
  const auto& w = rig.add("w", Role::kBoth);
  const auto prompt = rig.prompt(60);
  const auto a = rig.prepare("w", prompt, 300, false);
  const auto b = rig.prepare("w", prompt, 300, false);
  actor(w).on(a);
  actor(w).on(b);
  bool held = true;
  REQUIRE(rig.world.run_while(
      [&] {
        const Worker& at = w.node->worker();
        std::set<uint32_t> blocks;
        for (const auto& [key, s] : at.held())
          for (const BlockRef& ref : s.blocks) blocks.insert(raw(ref.block));
        for (const uint32_t id : w.engine->in_use()) held = held && blocks.contains(id);
        return at.counters().steps < 200;
      },
      5s));
  CHECK(held);
  CHECK(w.node->worker().blocks().active <= 260 / 16 + 4);
  CHECK(counters(w).followed > 150);
  for (const auto& m : {a, b}) {
    REQUIRE(rig.await_finish("w", m.transfer));
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  }
  CHECK(rig.all_free());
}

// The second prompt is half computed when the first one's blocks become known.
TEST_CASE("a block that was given to a sender is not exchanged") {
  Rig rig;
  rig.options.token_budget = 300;
  rig.engine.blocks = 100;
  const auto& p = rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto prompt = rig.prompt(200);
  std::vector<to_worker::Prepare> all;
  std::vector<to_worker::Start> starts;
  for (int i = 0; i < 2; ++i) {
    all.push_back(rig.prepare("d", prompt, 20, true));
    rig.coordinator.send("d", all.back());
    starts.push_back(rig.start_for("p", all.back(), rig.await_grant("d", all.back().transfer)));
  }
  for (const auto& start : starts) actor(p).on(start);
  std::map<std::pair<uint64_t, uint32_t>, BlockRef> given;
  bool same = true;
  const auto look = [&] {
    for (const auto& [key, s] : p.node->worker().held())
      for (uint32_t i = 0; i < s.pushed_blocks && i < s.blocks.size(); ++i)
        same = same && given.emplace(std::pair(key, i), s.blocks[i]).first->second == s.blocks[i];
  };
  for (const auto& m : all) {
    REQUIRE(rig.world.run_while(
        [&] {
          look();
          return !rig.coordinator.finished("d", m.transfer);
        },
        20s));
    CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
  }
  CHECK(same);
  CHECK(given.size() == 2 * 13);
  for (uint32_t i = 0; i < 12; ++i) CHECK(given.at({1, i}) == given.at({2, i}));
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
}

}  // namespace
}  // namespace headrace::worker

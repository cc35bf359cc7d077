#include "worker/step.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

PlanSequence decoding(uint32_t length, uint32_t blocks, uint32_t promised, Duration arrived) {
  return {length, length - 1, blocks, promised, true, arrived};
}

PlanSequence prompt(uint32_t length, uint32_t reserve, Duration arrived) {
  return {length, 0, 0, length + reserve, true, arrived};
}

PlanInput input(uint32_t free_blocks, uint32_t block_tokens = 16) {
  PlanInput in;
  in.free_blocks = free_blocks;
  in.limits.block_tokens = block_tokens;
  return in;
}

TEST_CASE("decode rows come first, then chunks up to the budget, then admissions") {
  PlanInput in = input(100);
  in.limits.token_budget = 64;
  in.running = {{100, 32, 2, 100, true, 1s}, decoding(20, 2, 32, 2s)};
  in.waiting = {prompt(40, 16, 3s)};
  const Plan p = plan(in);
  CHECK(p.preempt.empty());
  REQUIRE(p.parts.size() == 2);
  CHECK(p.parts[0] == PlanPart{false, 1, 1, 0, true});
  CHECK(p.parts[1] == PlanPart{false, 0, 63, 4, false});  // 32 + 63 = 95 tokens: 6 blocks

  in.limits.token_budget = 100;
  const Plan q = plan(in);
  REQUIRE(q.parts.size() == 3);
  CHECK(q.parts[1] == PlanPart{false, 0, 68, 5, true});
  CHECK(q.parts[2] == PlanPart{true, 0, 31, 2, false});
}

TEST_CASE("a part that ends a prompt samples, unless the sequence only prefills") {
  PlanInput in = input(10);
  in.running = {{10, 0, 0, 10, true, 1s}, {10, 0, 0, 10, false, 2s}, {10, 9, 1, 10, false, 3s}};
  const Plan p = plan(in);
  REQUIRE(p.parts.size() == 3);
  for (const PlanPart& part : p.parts) CHECK(part.sample == (part.index == 0));
}

TEST_CASE("prefill goes on though decode rows fill the budget") {
  PlanInput in = input(100);
  in.limits.token_budget = 16;
  for (int i = 0; i < 40; ++i) in.running.push_back(decoding(20, 2, 32, 1s));
  in.waiting = {prompt(100, 0, 2s)};
  const Plan p = plan(in);
  REQUIRE(p.parts.size() == 41);
  CHECK(p.parts.back().tokens == kPrefillMin);
}

// 1 ms for a token by itself and 1 us for each that it looks back at.
TimeModel slow_machine() {
  TimeModel m;
  m.limits.f32_flops_per_second = 1e9;
  m.cost.flops_per_token = 1'000'000;
  m.cost.attention_flops = 1000;
  return m;
}

TEST_CASE("a chunk beside decode rows is bounded by time, wherever in its prompt it stands") {
  const TimeModel time = slow_machine();
  PlanInput in = input(10'000);
  in.limits.time = &time;
  uint32_t last = UINT32_MAX;
  for (const uint32_t computed : {0u, 2000u, 5000u, 100'000u}) {
    CAPTURE(computed);
    in.running = {decoding(20, 2, 32, 1s), {200'000, computed, 6250, 200'000, true, 2s}};
    const Plan p = plan(in);
    REQUIRE(p.parts.size() == 2);
    const uint32_t tokens = p.parts[1].tokens;
    CHECK(tokens < last);
    CHECK(tokens >= kPrefillMin);
    last = tokens;
    if (tokens == kPrefillMin) continue;
    const Duration decode = predict_decode_step(time, 1, 20);
    CHECK(decode + predict_prefill(time, tokens, computed) <= 200ms);
    // Not more is left unused than what tokens are rounded by.
    CHECK(decode + predict_prefill(time, tokens + kPrefillMin, computed) > 200ms);
  }
  CHECK(last == kPrefillMin);
  // Steps that take longer than predicted get less.
  in.running[1].computed = 0;
  const uint32_t before = plan(in).parts[1].tokens;
  in.limits.mixed_ratio = 2;
  CHECK(plan(in).parts[1].tokens < before * 6 / 10);
}

TEST_CASE("prompts get as much time as the decode rows, though those fill the step") {
  const TimeModel time = slow_machine();
  PlanInput in = input(10'000);
  in.limits.time = &time;
  for (int i = 0; i < 250; ++i) in.running.push_back(decoding(1000, 63, 1000, 1s));
  in.waiting = {prompt(1000, 0, 2s)};
  const Plan p = plan(in);  // the rows alone take 500 ms
  REQUIRE(p.parts.size() == 251);
  CHECK(p.parts[250].tokens > 3 * kPrefillMin);
}

TEST_CASE("without decode rows a step has more time, and the next prompt only what is left of it") {
  const TimeModel time = slow_machine();
  PlanInput in = input(10'000);
  in.limits.time = &time;
  in.waiting = {prompt(300, 0, 1s), prompt(4000, 0, 2s), prompt(4100, 0, 3s)};
  const Plan p = plan(in);
  REQUIRE(p.parts.size() == 2);
  CHECK(p.parts[0].tokens == 300);
  CHECK(p.parts[1].tokens < 512 - 300 + 1);
  in.running = {{9000, 8000, 500, 9000, true, 0s}};
  const Plan q = plan(in);  // 9 ms a token
  REQUIRE(!q.parts.empty());
  CHECK(q.parts[0] == PlanPart{false, 0, 96, 6, false});
}

TEST_CASE("rows never pass what the engine takes") {
  PlanInput in = input(100);
  in.limits.rows_max = 32;
  in.limits.running_max = 32;
  in.limits.token_budget = 512;
  for (int i = 0; i < 30; ++i) in.running.push_back(decoding(20, 2, 32, 1s));
  in.waiting = {prompt(100, 0, 2s)};
  const Plan p = plan(in);
  uint32_t rows = 0;
  for (const auto& part : p.parts) rows += part.tokens;
  CHECK(rows == 32);
}

TEST_CASE("admission keeps the growth of those who run") {
  PlanInput in = input(10);
  in.running = {decoding(16, 1, 16 + 64, 1s)};  // 4 blocks promised
  in.waiting = {prompt(64, 48, 2s)};            // wants 7
  CHECK(plan(in).parts.size() == 1);
  in.free_blocks = 11;
  CHECK(plan(in).parts.size() == 2);
  in.granted_blocks = 1;
  CHECK(plan(in).parts.size() == 1);
}

TEST_CASE("nothing overtakes a sequence that does not fit") {
  PlanInput in = input(4);
  in.waiting = {prompt(100, 0, 1s), prompt(10, 0, 2s)};
  CHECK(plan(in).parts.empty());
}

TEST_CASE("a short prompt passes a long one by a bounded time") {
  PlanInput in = input(1000);
  in.limits.token_budget = 16;
  in.waiting = {prompt(1000, 0, 1000ms), prompt(10, 0, 1040ms)};
  CHECK(plan(in).parts[0].index == 1);
  in.waiting[1].arrived = 1060ms;  // 990 tokens are worth 49.5 ms
  CHECK(plan(in).parts[0].index == 0);
}

TEST_CASE("a short prompt passes a long one that is half computed, by the time the rest takes") {
  PlanInput in = input(1000);
  in.limits.token_budget = 32;
  in.limits.ageing_per_token = 1ms;
  in.running = {{1000, 320, 20, 1000, true, 1s}};
  in.waiting = {prompt(10, 0, 1500ms)};  // 680 tokens are worth 680 ms, 10 are worth 10 ms
  Plan p = plan(in);
  REQUIRE(p.parts.size() == 2);
  CHECK(p.parts[0] == PlanPart{true, 0, 10, 1, true});
  CHECK(p.parts[1] == PlanPart{false, 0, 22, 2, false});
  in.waiting[0].arrived = 1700ms;
  p = plan(in);
  REQUIRE(p.parts.size() == 1);
  CHECK(p.parts[0] == PlanPart{false, 0, 32, 2, false});
}

TEST_CASE("running_max counts grants too") {
  PlanInput in = input(100);
  in.limits.running_max = 2;
  in.running = {decoding(5, 1, 16, 1s)};
  in.waiting = {prompt(10, 0, 2s), prompt(10, 0, 3s)};
  CHECK(plan(in).parts.size() == 2);
  in.granted_sequences = 1;
  CHECK(plan(in).parts.size() == 1);
}

TEST_CASE("who outgrows its promise takes a spare block, never a promised one") {
  PlanInput in = input(2);
  in.running = {decoding(17, 1, 16, 1s), decoding(16, 1, 32, 2s)};
  Plan p = plan(in);
  CHECK(p.preempt.empty());
  CHECK(p.parts[0].new_blocks == 1);
  in.free_blocks = 1;  // promised to the second, which does not need it yet
  p = plan(in);
  CHECK(p.preempt == std::vector<uint32_t>{1});
  REQUIRE(p.parts.size() == 1);
  CHECK(p.parts[0] == PlanPart{false, 0, 1, 1, true});
}

TEST_CASE("the youngest goes first, and goes itself if it is the one that grows") {
  PlanInput in = input(0);
  in.running = {decoding(20, 2, 20, 3s), decoding(17, 1, 16, 2s), decoding(30, 2, 30, 1s)};
  CHECK(plan(in).preempt == std::vector<uint32_t>{0});
  in.running[1].arrived = 4s;
  const Plan p = plan(in);
  CHECK(p.preempt == std::vector<uint32_t>{1});
  CHECK(p.parts.size() == 2);
}

TEST_CASE("a prefill worker's sequences are not preempted") {
  PlanInput in = input(0);
  in.running = {{20, 16, 2, 20, false, 9s}, decoding(17, 1, 16, 2s)};
  const Plan p = plan(in);
  CHECK(p.preempt == std::vector<uint32_t>{1});
  REQUIRE(p.parts.size() == 1);
  CHECK(p.parts[0].index == 0);
}

TEST_CASE("room for a grant leaves out what is promised or waited for") {
  PlanInput in = input(10);
  CHECK(room(in) == 10);
  in.running = {decoding(16, 1, 48, 1s)};
  in.granted_blocks = 1;
  in.waiting = {prompt(30, 2, 2s)};
  CHECK(room(in) == 5);
  in.waiting.push_back(prompt(300, 0, 2s));
  CHECK(room(in) == 0);
}

TEST_CASE("hits count as free until their sequence is admitted, unless others hold them") {
  PlanInput in = input(10);
  in.waiting = {prompt(64, 16, 1s)};  // 5 blocks
  in.waiting[0].hits = 3;
  in.waiting[0].idle_hits = 3;
  in.waiting[0].computed = 48;
  CHECK(to_admit(in.waiting[0], 16) == 5);
  Plan p = plan(in);
  REQUIRE(p.parts.size() == 1);
  CHECK(p.parts[0] == PlanPart{true, 0, 16, 1, true});
  in.free_blocks = 4;
  CHECK(plan(in).parts.empty());
  CHECK(plan(in).kv_short);
  in.waiting[0].idle_hits = 2;
  CHECK(to_admit(in.waiting[0], 16) == 4);
  CHECK(plan(in).parts.size() == 1);
  CHECK(!plan(in).kv_short);
  CHECK(room(in) == 0);
}

TEST_CASE("who only prefills and has everything is admitted without work") {
  PlanInput in = input(4);
  in.waiting = {{64, 64, 0, 64, false, 1s, 0, 4, 4}};
  const Plan p = plan(in);
  REQUIRE(p.parts.size() == 1);
  CHECK(p.parts[0] == PlanPart{true, 0, 0, 0, false});
}

TEST_CASE("preempting one that shares frees only what is its own; the rest is for the next plan") {
  PlanInput in = input(0);
  in.running = {decoding(33, 2, 32, 1s), decoding(33, 2, 32, 2s)};
  in.running[0].shared = in.running[1].shared = 2;
  const Plan p = plan(in);
  CHECK(p.preempt == std::vector<uint32_t>{1});
  CHECK(p.parts.empty());  // the oldest stays and asks again
  CHECK(p.kv_short);
}

// Runs a whole load through plan(), as the worker would, with nothing but counters.
struct Load {
  struct S {
    PlanSequence p;
    uint32_t end = 0;
    bool waits = true;
  };
  uint32_t total = 0;
  PlanLimits limits;
  std::vector<S> all;
  uint64_t steps = 0;
  uint64_t preempted = 0;

  uint32_t held() const {
    return std::accumulate(all.begin(), all.end(), 0u,
                           [](uint32_t n, const S& s) { return n + s.p.blocks; });
  }
  bool step() {
    PlanInput in;
    in.limits = limits;
    in.free_blocks = total - held();
    std::vector<size_t> running;
    std::vector<size_t> waiting;
    for (size_t i = 0; i < all.size(); ++i) {
      (all[i].waits ? waiting : running).push_back(i);
      (all[i].waits ? in.waiting : in.running).push_back(all[i].p);
    }
    const Plan p = plan(in);
    for (const uint32_t i : p.preempt) {
      S& s = all[running[i]];
      s.waits = true;
      s.p.blocks = s.p.computed = 0;
      s.p.promised = s.p.length + std::min(s.end - s.p.length, kGrowthReserve);
      ++preempted;
    }
    for (const PlanPart& part : p.parts) {
      S& s = all[(part.from_waiting ? waiting : running)[part.index]];
      s.waits = false;
      s.p.blocks += part.new_blocks;
      s.p.computed += part.tokens;
      REQUIRE(s.p.computed <= s.p.length);
      REQUIRE(blocks_for(s.p.computed, limits.block_tokens) == s.p.blocks);
      REQUIRE(part.sample == (s.p.computed == s.p.length));
      if (part.sample) ++s.p.length;
    }
    REQUIRE(held() <= total);
    std::erase_if(all, [](const S& s) { return s.p.length >= s.end; });
    ++steps;
    return !p.parts.empty() || !p.preempt.empty();
  }
};

TEST_CASE("any load that fits ends, and the oldest advances in each step") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    SeededRandom random(seed);
    Load load;
    load.limits.block_tokens = 16;
    load.limits.token_budget = 16u << (random.next() % 4);
    load.limits.running_max = 1 + static_cast<uint32_t>(random.next() % 12);
    load.total = 40;  // 640 tokens
    for (int i = 0; i < 30; ++i) {
      const auto length = static_cast<uint32_t>(1 + random.next() % 100);
      const auto made = static_cast<uint32_t>(1 + random.next() % 500);
      const Duration arrived = std::chrono::milliseconds(i);
      load.all.push_back({prompt(length, std::min(made, kGrowthReserve), arrived), length + made});
    }
    while (!load.all.empty()) {
      REQUIRE(load.step());
      REQUIRE(load.steps < 100000);
    }
  }
}

}  // namespace
}  // namespace headrace::worker

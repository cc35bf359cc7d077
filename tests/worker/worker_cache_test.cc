#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "tests/worker/worker_fixture.h"
#include "worker/worker.h"

namespace headrace::worker {
namespace {

using namespace to_coordinator;

// Asks "w" and gives the number of prompt tokens it found cached.
uint32_t ask(Rig& rig, const to_worker::Prepare& m) {
  rig.coordinator.send("w", m);
  REQUIRE(rig.await_finish("w", m.transfer));
  CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  return rig.coordinator.runs("w", m.transfer).back().cached_tokens;
}

Digest digest(Rig& rig, const to_worker::Prepare& m) {
  return rig.coordinator.runs("w", m.transfer).back().kv;
}

TEST_CASE("a repeated prompt hits its full blocks, at most all but its last token") {
  for (const uint32_t n : {1u, 15u, 16u, 17u, 32u, 33u, 47u, 48u, 49u, 100u}) {
    CAPTURE(n);
    Rig rig(n);
    const auto& w = rig.add("w", Role::kBoth);
    auto first = rig.prepare("w", rig.prompt(n), 20, false);
    first.kv_digest = true;
    CHECK(ask(rig, first) == 0);
    auto second = rig.prepare("w", first.prompt, 20, false);
    second.kv_digest = true;
    const uint64_t prefilled = w.node->worker().counters().prefilled;
    const uint32_t hit = (n - 1) / 16 * 16;
    CHECK(ask(rig, second) == hit);
    const uint64_t computed = w.node->worker().counters().prefilled - prefilled;
    CHECK(computed <= n - hit);
    CHECK(digest(rig, first) == digest(rig, second));
    CHECK(rig.all_free());
    CHECK(rig.no_violation());
  }
}

TEST_CASE("prefixes of every length are hit as far as they agree, and answers go on from them") {
  Rig rig(5);
  rig.add("w", Role::kBoth);
  const auto base = rig.prepare("w", rig.prompt(80), 20, false);
  ask(rig, base);
  for (uint32_t n = 1; n <= 80; n += 7) {
    CAPTURE(n);
    auto prompt = base.prompt;
    prompt.resize(n);
    const auto tail = rig.prompt(10);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    CHECK(ask(rig, rig.prepare("w", prompt, 10, false)) == n / 16 * 16);
  }
  // Prompt and answer together: what was generated is cached too.
  auto longer = base.prompt;
  const auto answer = rig.expected(base);
  longer.insert(longer.end(), answer.begin(), answer.end());
  CHECK(ask(rig, rig.prepare("w", longer, 10, false)) == 96);  // the KV of token 100 was not made
  CHECK(rig.no_violation());
}

TEST_CASE("another salt, another key or no cache at all hits nothing") {
  Rig rig;
  rig.add("w", Role::kBoth);
  auto m = rig.prepare("w", rig.prompt(50), 5, false);
  CHECK(ask(rig, m) == 0);
  auto salted = rig.prepare("w", m.prompt, 5, false);
  salted.cache_salt = 9;
  CHECK(ask(rig, salted) == 0);
  salted.transfer = rig.world.random().mint<TransferId>();
  CHECK(ask(rig, salted) == 48);

  // The same coordinator again keeps the cache; one with another key ends it.
  rig.coordinator.drop_link("w");
  rig.world.run_for(2s);
  CHECK(ask(rig, rig.prepare("w", m.prompt, 5, false)) == 48);
  rig.coordinator.cache_key = {7, 7};
  rig.coordinator.drop_link("w");
  rig.world.run_for(2s);
  CHECK(rig.workers[0]->node->worker().cached_blocks() == 0);
  CHECK(rig.workers[0]->node->worker().blocks().free == rig.engine.blocks);
  CHECK(ask(rig, rig.prepare("w", m.prompt, 5, false)) == 0);

  Rig off;
  off.options.prefix_cache = false;
  off.add("w", Role::kBoth);
  const auto n = off.prepare("w", off.prompt(50), 5, false);
  CHECK(ask(off, n) == 0);
  CHECK(ask(off, off.prepare("w", n.prompt, 5, false)) == 0);
  CHECK(off.workers[0]->node->worker().blocks().free == off.engine.blocks);
}

TEST_CASE("requests that run at the same time share what the first of them has computed") {
  Rig rig(3);
  rig.engine.blocks = 40;
  const auto& w = rig.add("w", Role::kBoth);
  const auto prompt = rig.prompt(200);  // 13 blocks, 22 with the answer
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(rig.prepare("w", prompt, 150, false));
    all.back().sampling.seed = static_cast<uint64_t>(i);
    rig.coordinator.send("w", all.back());
    rig.world.run_for(20ms);
  }
  CHECK(w.node->worker().blocks().active < 32);  // 13 and more each, if they shared nothing
  for (const auto& m : all) {
    REQUIRE(rig.await_finish("w", m.transfer));
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  }
  CHECK(rig.no_violation());
  CHECK(rig.all_free());
}

TEST_CASE("twins that compute the same at the same time end with one copy, also when they grow") {
  Rig rig(3);
  rig.engine.blocks = 36;  // 576 tokens: two alone would not fit
  const auto& w = rig.add("w", Role::kBoth);
  const auto prompt = rig.prompt(30);
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 2; ++i) all.push_back(rig.prepare("w", prompt, 450, false));
  for (const auto& m : all) rig.coordinator.send("w", m);
  for (const auto& m : all) {
    REQUIRE(rig.await_finish("w", m.transfer, 60s));
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
  }
  CHECK(w.node->worker().counters().steps < 3000);
  CHECK(rig.no_violation());
  CHECK(rig.all_free());
}

TEST_CASE("who was preempted finds its own blocks again") {
  Rig rig;
  rig.engine.blocks = 40;
  const auto& w = rig.add("w", Role::kBoth);
  std::vector<to_worker::Prepare> all;
  for (int i = 0; i < 6; ++i) all.push_back(rig.prepare("w", rig.prompt(20), 400, false));
  for (const auto& m : all) rig.coordinator.send("w", m);
  for (const auto& m : all) {
    REQUIRE(rig.await_finish("w", m.transfer, 60s));
    CHECK(rig.coordinator.tokens("w", m.transfer) == rig.expected(m));
    CHECK(rig.coordinator.runs("w", m.transfer).back().cached_tokens ==
          0);  // of the prompt, at first
  }
  const auto& counters = w.node->worker().counters();
  REQUIRE(counters.preempted > 0);
  const uint64_t prompts = 6 * 20;
  CHECK(counters.prefilled < prompts + counters.preempted * 400);
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
}

struct Handed {
  uint32_t first_block = 0;
  uint64_t bytes = 0;
  uint32_t on_prefill = 0;
  uint32_t on_decode = 0;
  Digest kv;
};

// One hand-off from "p" to "d".
Handed hand_over(Rig& rig, std::vector<Token> prompt) {
  auto m = rig.prepare("d", std::move(prompt), 8, true);
  m.kv_digest = true;
  rig.coordinator.send("d", m);
  const GrantedBlocks grant = rig.await_grant("d", m.transfer);
  REQUIRE(!grant.blocks.empty());
  const size_t done = rig.coordinator.said<PrefillDone>("p").size();
  rig.coordinator.send("p", rig.start_for("p", m, grant));
  REQUIRE(rig.await_finish("d", m.transfer));
  REQUIRE(rig.await_said<PrefillDone>("p", done + 1));
  CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
  const auto run = rig.coordinator.runs("d", m.transfer).back();
  const auto last = rig.coordinator.said<PrefillDone>("p").back();
  return {grant.first_block, last.bytes, last.cached_tokens, run.cached_tokens, run.kv};
}

TEST_CASE("both sides of a hand-off use what they have, and only the rest is sent") {
  for (const uint32_t budget : {16u, 512u}) {
    Rig rig(budget);
    rig.options.token_budget = budget;
    rig.add("p", Role::kPrefill);
    rig.add("d", Role::kDecode);
    const auto prompt = rig.prompt(90);  // 89 to hand over: 5 full blocks and a tail
    const Handed first = hand_over(rig, prompt);
    CHECK(first.first_block == 0);
    CHECK(first.on_prefill == 0);
    CHECK(first.on_decode == 0);
    CHECK(first.bytes == 6 * 256);
    const Handed second = hand_over(rig, prompt);
    CHECK(second.first_block == 5);
    CHECK(second.on_prefill == 80);
    CHECK(second.on_decode == 80);
    CHECK(second.bytes == 256);
    CHECK(second.kv == first.kv);
    // A prompt that parts from it in the third block.
    auto other = prompt;
    other[40] ^= 1;
    const Handed third = hand_over(rig, other);
    CHECK(third.first_block == 2);
    CHECK(third.on_prefill == 32);
    CHECK(third.bytes == 4 * 256);
    CHECK(rig.all_free());
    CHECK(rig.no_violation());
  }
}

TEST_CASE("a prefill worker that has everything sends it without a step") {
  Rig rig;
  const auto& p = rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto prompt = rig.prompt(65);  // 64 to hand over: full blocks only
  hand_over(rig, prompt);
  const uint64_t steps = p.node->worker().counters().steps;
  rig.add("d2", Role::kDecode);  // has nothing
  auto m = rig.prepare("d2", prompt, 8, true);
  rig.coordinator.send("d2", m);
  const auto grant = rig.await_grant("d2", m.transfer);
  CHECK(grant.first_block == 0);
  rig.coordinator.send("p", rig.start_for("p", m, grant));
  REQUIRE(rig.await_finish("d2", m.transfer));
  CHECK(rig.coordinator.tokens("d2", m.transfer) == rig.expected(m));
  CHECK(p.node->worker().counters().steps == steps);
  rig.world.run_for(100ms);
  CHECK(rig.coordinator.said<PrefillDone>("p").back().cached_tokens == 64);
  CHECK(rig.coordinator.said<PrefillDone>("p").back().bytes == 4 * 256);
  CHECK(rig.all_free());
}

TEST_CASE("a decode worker that has all but the last token owns at once, without a grant") {
  Rig rig;
  rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto prompt = rig.prompt(65);
  hand_over(rig, prompt);
  const size_t grants = rig.coordinator.said<Grant>("d").size();
  auto m = rig.prepare("d", prompt, 8, true);
  rig.coordinator.send("d", m);
  REQUIRE(rig.await_finish("d", m.transfer));
  CHECK(rig.coordinator.tokens("d", m.transfer) == rig.expected(m));
  CHECK(rig.coordinator.said<Grant>("d").size() == grants);
  CHECK(rig.coordinator.said<Owned>("d").back().transfer == m.transfer);
  CHECK(rig.coordinator.runs("d", m.transfer).front().cached_tokens == 64);
  CHECK(rig.all_free());
}

TEST_CASE("a grant that begins at another block than the prompt has is refused") {
  Rig rig;
  rig.add("p", Role::kPrefill);
  rig.add("d", Role::kDecode);
  const auto m = rig.prepare("d", rig.prompt(40), 5, true);
  GrantedBlocks grant;
  grant.blocks.resize(2);
  grant.first_block = 3;
  rig.coordinator.send("p", rig.start_for("p", m, grant));
  REQUIRE(rig.await_said<Refuse>("p"));
  CHECK(rig.coordinator.said<Refuse>("p")[0].why.message.find("begins at block 3") !=
        std::string::npos);
  grant.first_block = 0xFFFFFFFF;
  auto start = rig.start_for("p", m, grant);
  start.transfer.lo ^= 1;
  rig.coordinator.send("p", start);
  REQUIRE(rig.await_said<Refuse>("p", 2));
}

TEST_CASE("numbers that are none end the cache, so that nothing spoilt is used again") {
  Rig rig;
  auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(50), 5, false);
  ask(rig, m);
  CHECK(w.node->worker().cached_blocks() == 3);
  w.engine->poison(true);
  const auto bad = rig.prepare("w", m.prompt, 5, false);
  rig.coordinator.send("w", bad);
  REQUIRE(rig.await_finish("w", bad.transfer));
  CHECK(w.node->worker().cached_blocks() == 0);
  w.engine->poison(false);
  CHECK(ask(rig, rig.prepare("w", m.prompt, 5, false)) == 0);
  CHECK(rig.all_free());
}

TEST_CASE("the coordinator is told what is cached, once, and everything again after a new start") {
  Rig rig;
  const auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(50), 20, false);
  ask(rig, m);
  rig.world.run_for(300ms);
  const auto chain = prefix_chain(rig.coordinator.cache_key, 0, m.prompt, 16);
  const Beat b = rig.coordinator.said<Beat>("w").back();
  CHECK(b.prefix_from == 0);
  REQUIRE(b.prefix_events.size() == 4);
  for (size_t i = 0; i < chain.size(); ++i) {
    CHECK(b.prefix_events[i] == PrefixEvent{PrefixEvent::Kind::kAdded, chain[i].brief()});
  }
  rig.coordinator.send("w", to_worker::Ping{rig.coordinator.term, {}, 4});
  rig.world.run_for(300ms);
  CHECK(rig.coordinator.said<Beat>("w").back().prefix_events.empty());
  CHECK(rig.coordinator.said<Beat>("w").back().prefix_from == 4);
  rig.coordinator.drop_link("w");
  rig.world.run_for(2s);
  CHECK(rig.coordinator.said<Beat>("w").back().prefix_from == 0);
  CHECK(rig.coordinator.said<Beat>("w").back().prefix_events.size() == 4);
  CHECK(w.node->worker().cached_blocks() == 4);
}

// Admissions with few different beginnings, hand-offs, preemption, cancels, failures, lost links.
TEST_CASE(
    "after 1,000 mixed operations every block is free or cached, and every answer was right") {
  Rig rig(77);
  rig.engine.blocks = 48;
  rig.options.token_budget = 64;
  rig.add("p", Role::kPrefill);
  const auto& d = rig.add("d", Role::kBoth);
  auto& random = rig.world.random();
  const auto base = rig.prompt(120);
  std::vector<to_worker::Prepare> live;
  std::map<TransferId, std::vector<Token>> right;
  uint64_t finished = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t what = random.next() % 100;
    if (what < 45 && live.size() < 8) {
      auto prompt = base;
      prompt.resize(1 + random.next() % 120);
      prompt.back() = static_cast<Token>(random.next() % 3);
      const bool remote = prompt.size() > 1 && random.next() % 2 == 0;
      auto m = rig.prepare("d", prompt, static_cast<uint32_t>(1 + random.next() % 390), remote);
      m.cache_salt = random.next() % 2;
      rig.coordinator.send("d", m);
      live.push_back(m);
      right[m.transfer] = rig.expected(m);
      if (remote) {
        const auto grant = rig.await_grant("d", m.transfer);
        if (!grant.blocks.empty()) {
          auto start = rig.start_for("p", m, grant);
          start.cache_salt = m.cache_salt;
          if (random.next() % 10 == 0) start.grant.key.lo ^= 1;  // fails
          rig.coordinator.send("p", start);
        }
      }
    } else if (what < 60 && !live.empty()) {
      const auto& m = live[random.next() % live.size()];
      const to_worker::Cancel cancel{rig.coordinator.term, m.transfer, m.attempt, {}};
      rig.coordinator.send("d", cancel);
      rig.coordinator.send("p", cancel);
    } else if (what == 60) {
      rig.coordinator.drop_link(random.next() % 2 == 0 ? "p" : "d");
      rig.world.run_for(1s);
      live.clear();
    } else {
      rig.world.run_for(std::chrono::milliseconds(random.next() % 40));
    }
    REQUIRE(sim::blocks_add_up(d.node->worker().blocks()));
    for (const auto& m : live) {
      const auto& want = right.at(m.transfer);
      const auto got = rig.coordinator.tokens("d", m.transfer);
      REQUIRE(got.size() <= want.size());
      REQUIRE(std::equal(got.begin(), got.end(), want.begin()));
      finished += got.size() == want.size() ? 1 : 0;
    }
    std::erase_if(live, [&](const auto& m) { return rig.coordinator.finished("d", m.transfer); });
  }
  rig.coordinator.live.clear();
  rig.world.run_for(60s);
  CHECK(finished > 50);
  CHECK(rig.all_free());
  CHECK(rig.no_violation());
  CHECK(d.node->worker().blocks().cached == d.node->worker().cached_blocks());
  CHECK(d.node->worker().counters().preempted > 0);
}

}  // namespace
}  // namespace headrace::worker

#include "coordinator/registry.h"
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

#include <cmath>

namespace headrace::coordinator {
using namespace fakes;

TEST_CASE("the first card is the cluster's, the last to leave clears it") {
  Registry r;
  CHECK(r.admit(WorkerId{1}, hello(Role::kDecode, 1), Instant{}).ok());
  auto other = hello(Role::kDecode, 2);
  other.card.weights = {0xCD34000000000000ull, 2};
  const Status no = r.admit(WorkerId{2}, other, Instant{});
  CHECK(no.code == Errc::kInvalid);
  CHECK(no.message ==
        "worker serves Fake 1M (digest cd340000), this cluster serves Fake 1M (digest 00000000)");
  CHECK(r.size() == 1);
  r.remove(WorkerId{1});
  CHECK_FALSE(r.card());
  CHECK(r.admit(WorkerId{3}, other, Instant{}).ok());
}

TEST_CASE("what differs is named") {
  const auto why = [](auto change) {
    ModelCard theirs = card();
    change(theirs);
    return compare_cards(card(), theirs).message;
  };
  CHECK(compare_cards(card(), card()).ok());
  CHECK(why([](ModelCard& c) { c.block_tokens = 32; }).find("32") != std::string::npos);
  CHECK(why([](ModelCard& c) { c.kv_layout = "f32"; }).find("'f32'") != std::string::npos);
  CHECK(why([](ModelCard& c) { c.kv_layout = "fp8 block"; }) ==
        "worker has KV layout 'fp8 block', this cluster has KV layout 'f16'");
  CHECK(why([](ModelCard& c) { c.numerics = "cuda"; }).find("'cuda'") != std::string::npos);
  CHECK(why([](ModelCard& c) { c.context = 9; }).find("9") != std::string::npos);
  CHECK(why([](ModelCard& c) { c.tokenizer = {1, 1}; }).find("tokenizer") != std::string::npos);
  CHECK(why([](ModelCard& c) { c.layers = 77; }).find("geometry") != std::string::npos);
}

TEST_CASE("impossible announcements and too many workers are refused") {
  Registry r;
  auto zero = hello(Role::kDecode, 1);
  zero.kv_blocks = 0;
  CHECK(r.admit(WorkerId{1}, zero, Instant{}).code == Errc::kInvalid);
  zero = hello(Role::kDecode, 1);
  zero.card.context = 0;
  CHECK(r.admit(WorkerId{1}, zero, Instant{}).code == Errc::kInvalid);
  const auto refused = [](auto change) {
    auto evil = hello(Role::kDecode, 1);
    change(evil);
    return Registry().admit(WorkerId{1}, evil, Instant{}).code == Errc::kInvalid;
  };
  CHECK_FALSE(refused([](auto& h) { h.name = std::string(kWorkerTextMax, 'n'); }));
  CHECK(refused([](auto& h) { h.name = std::string(kWorkerTextMax + 1, 'n'); }));
  CHECK(refused([](auto& h) { h.name = "a\x1b[31mb"; }));
  CHECK(refused([](auto& h) { h.device = "two\nlines"; }));
  CHECK(refused([](auto& h) { h.name = "a\xff"; }));
  CHECK(refused([](auto& h) { h.name.clear(); }));
  CHECK(refused([](auto& h) { h.incarnation = {}; }));
  CHECK(refused([](auto& h) { h.metrics.host = std::string(60'000, 'h'); }));
  CHECK(refused([](auto& h) { h.kv_blocks = UINT32_MAX; }));
  for (const double rate : {-1.0, 1e308, HUGE_VAL, std::nan("")}) {
    CHECK(refused([&](auto& h) { h.limits.read = {{1 << 20, rate}}; }));
    CHECK(refused([&](auto& h) { h.limits.int8_ops_per_second = rate; }));
  }
  for (uint64_t i = 1; i <= kWorkersMax; ++i)
    CHECK(r.admit(WorkerId{i}, hello(Role::kBoth, i), Instant{}).ok());
  const Status full = r.admit(WorkerId{5000}, hello(Role::kBoth, 5000), Instant{});
  CHECK(full.code == Errc::kOverloaded);
  CHECK(full.message.find("1024") != std::string::npos);
}

TEST_CASE("a name is one worker's") {
  Registry r;
  REQUIRE(r.admit(WorkerId{1}, hello(Role::kDecode, 1), Instant{}).ok());
  auto second = hello(Role::kDecode, 2);
  second.name = "decode-1";
  const Status no = r.admit(WorkerId{2}, second, Instant{});
  CHECK(no.code == Errc::kInvalid);
  CHECK(no.message.find("'decode-1' is here (process 1001)") != std::string::npos);
  REQUIRE(r.namesake(second));
  CHECK_FALSE(r.namesake(hello(Role::kDecode, 1)));  // itself
  r.remove(WorkerId{1});
  CHECK(r.admit(WorkerId{2}, second, Instant{}).ok());
}

TEST_CASE("what a starved request is borne with grows with the prompts that are booked") {
  WorkerRecord w;
  w.hello = hello(Role::kDecode, 1);
  w.hello.card.cost.flops_per_token = 1'000'000'000;  // of 1e12 a second: 1 ms a token
  CHECK(step_patience(w) == kProgressWithin);
  CHECK(starvation_patience(w) == kProgressWithin * kStarvedFactor);
  w.load.prefill_tokens = 10'000;
  const Duration more = starvation_patience(w) - kProgressWithin * kStarvedFactor;
  CHECK(more >= 8 * 10s);
  CHECK(more < 8 * 11s);
  w.load.prefill_tokens = UINT64_MAX;
  CHECK(starvation_patience(w) <= kProgressWithin * kStarvedFactor + kStarvedPromptsMax);
  w.hello.limits = {};  // nothing was measured
  w.load.prefill_tokens = 1024;
  CHECK(starvation_patience(w) == kProgressWithinMax * (kStarvedFactor + 3));
}

TEST_CASE("beats: silence, progress, stall, another process") {
  Registry r;
  REQUIRE(r.admit(WorkerId{1}, hello(Role::kPrefill, 1), Instant{}).ok());
  to_coordinator::Beat beat;
  beat.incarnation = {1, 1};
  beat.steps = 1;
  beat.running = 1;
  CHECK(r.beat(WorkerId{1}, beat, Instant{1s}));
  CHECK(r.find(WorkerId{1})->progressed == Instant{1s});
  r.find(WorkerId{1})->stalled = true;
  CHECK(r.beat(WorkerId{1}, beat, Instant{2s}));
  CHECK(r.find(WorkerId{1})->progressed == Instant{1s});
  CHECK(r.find(WorkerId{1})->stalled);
  beat.running = 0;  // rid of its work
  CHECK(r.beat(WorkerId{1}, beat, Instant{2s}));
  CHECK_FALSE(r.find(WorkerId{1})->stalled);
  beat.correction = {-1e300, 1e300, -5s};
  CHECK(r.beat(WorkerId{1}, beat, Instant{2s}));
  CHECK(r.find(WorkerId{1})->beat.correction == Correction{0.01, 100, 0s});
  beat.incarnation = {2, 2};
  CHECK_FALSE(r.beat(WorkerId{1}, beat, Instant{9s}));
  CHECK_FALSE(r.beat(WorkerId{7}, beat, Instant{9s}));
  CHECK(r.silent(Instant{3s}, 1s).empty());
  CHECK(r.silent(Instant{3s} + 1ms, 1s) == std::vector<WorkerId>{WorkerId{1}});
  CHECK(r.decoders() == 0);
  CHECK(r.decode_blocks_max() == 0);
  REQUIRE(r.admit(WorkerId{2}, hello(Role::kBoth, 2), Instant{}).ok());
  CHECK(r.decoders() == 1);
  CHECK(r.decode_blocks_max() == 100);
  CHECK(r.find(Incarnation{2, 2})->id == WorkerId{2});
  CHECK(r.find(Incarnation{3, 3}) == nullptr);
}

TEST_CASE("patience grows with the predicted step, within bounds") {
  WorkerRecord w;
  w.hello = hello(Role::kBoth, 1);
  CHECK(step_patience(w) == kProgressWithin);  // fast
  w.hello.card.cost.flops_per_token = 1'500'000'000;
  w.hello.limits.f32_flops_per_second = 1e12 / kSlowdown;  // 0.77 s a step, times eight
  CHECK(step_patience(w) > kProgressWithin);
  CHECK(step_patience(w) < kProgressWithinMax);
  w.hello.limits.f32_flops_per_second = 1e9;
  CHECK(step_patience(w) == kProgressWithinMax);
  w.hello.limits.f32_flops_per_second = 0;  // not measured
  CHECK(step_patience(w) == kProgressWithinMax);
  w.hello = hello(Role::kBoth, 1);
  w.hello.card.numerics = "reference-f32";
  CHECK(step_patience(w) == kProgressWithinMax);
}

TEST_CASE("a ping that is not answered tells who is deaf; a later answer covers it") {
  Registry r;
  REQUIRE(r.admit(WorkerId{1}, hello(Role::kBoth, 1), Instant{1s}).ok());
  CHECK(r.deaf(Instant{100s}, 1s).empty());  // nothing was asked
  CHECK(r.pinged(WorkerId{1}, Instant{1s}) == 1);
  CHECK(r.pinged(WorkerId{1}, Instant{2s}) == 2);
  CHECK(r.deaf(Instant{2s}, 1s).empty());
  CHECK(r.deaf(Instant{2s} + 1ms, 1s) == std::vector<WorkerId>{WorkerId{1}});
  to_coordinator::Beat beat;
  beat.incarnation = {1, 1};
  beat.ping_seen = 1;
  CHECK(r.beat(WorkerId{1}, beat, Instant{2s}));
  CHECK(r.deaf(Instant{3s}, 1s).empty());
  CHECK(r.deaf(Instant{3s} + 1ms, 1s).size() == 1);
  beat.ping_seen = 2;
  CHECK(r.beat(WorkerId{1}, beat, Instant{9s}));
  CHECK(r.deaf(Instant{99s}, 1s).empty());
  for (int i = 0; i < 10'000; ++i) r.pinged(WorkerId{1}, Instant{100s});
  CHECK(r.find(WorkerId{1})->unanswered.size() < 100);
}

}  // namespace headrace::coordinator

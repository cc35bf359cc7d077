#include "protocol/time_model.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>

namespace headrace {
namespace {

constexpr uint64_t kMiB = 1u << 20;

TEST_CASE("a GPU's products and attention are of its bf16 peak, a CPU's of their own") {
  MachineLimits m;
  m.int8_ops_per_second = 4e12;
  m.f32_flops_per_second = 1e12;
  CHECK(product_peak(m, true) == 4e12);
  CHECK(product_peak(m, false) == 1e12);
  CHECK(attention_peak(m) == 1e12);
  m.bf16_flops_per_second = 2e12;
  CHECK(product_peak(m, true) == 2e12);
  CHECK(product_peak(m, false) == 2e12);
  CHECK(attention_peak(m) == 2e12);
  const TimeModel w{.limits = m, .cost = {.flops_per_token = 1'000'000'000, .attention_flops = 0}};
  CHECK(predict_prefill(w, 2000, 0) == 1s);
}

TEST_CASE("the read limit is log-linear between points and flat outside") {
  MachineLimits m;
  CHECK(read_limit(m, 100) == 0);
  m.read = {{1 * kMiB, 100e9}, {16 * kMiB, 60e9}, {256 * kMiB, 20e9}};
  CHECK(read_limit(m, 0) == 100e9);
  CHECK(read_limit(m, 1 * kMiB) == 100e9);
  CHECK(read_limit(m, 4 * kMiB) == doctest::Approx(80e9));  // half way in log2: 2 of 4
  CHECK(read_limit(m, 16 * kMiB) == doctest::Approx(60e9));
  CHECK(read_limit(m, 32 * kMiB) == doctest::Approx(50e9));  // 1 of 4
  CHECK(read_limit(m, 1024 * kMiB) == 20e9);
  m.read = {{0, 8e9}, {1 * kMiB, 4e9}};
  CHECK(read_limit(m, 1024) == doctest::Approx(6e9));  // 10 of 20
  m.read = {{5, 1e9}, {5, 2e9}, {5, 3e9}};
  CHECK(read_limit(m, 5) == 1e9);
  CHECK(read_limit(m, 6) == 3e9);
}

// One number a wall, so that the sums can be done by hand.
TimeModel hand_model() {
  TimeModel w;
  w.limits.read = {{1, 1e9}};
  w.limits.int8_ops_per_second = 1e12;
  w.limits.f32_flops_per_second = 1e11;
  w.limits.link_bytes_per_second = 5e8;
  w.cost = {.weight_bytes = 10'000'000,
            .kv_token_bytes = 1'000,
            .flops_per_token = 1'000'000'000,
            .head_flops = 100'000'000,
            .attention_flops = 10'000,
            .quantized = true};
  return w;
}

TEST_CASE("prefill: the larger of computing and moving, quadratic in attention") {
  const TimeModel w = hand_model();
  // 100 tokens: 100 * 1e9 / 1e12 = 0.1 s; pairs 100*101/2 = 5,050 * 1e4 / 1e11 = 0.505 ms.
  CHECK(predict_prefill(w, 100, 0).count() == doctest::Approx(100'505'000));
  // 1 token: 1 ms to compute, 10.001 MB at 1 GB/s = 10.001 ms to move.
  CHECK(predict_prefill(w, 1, 0).count() == doctest::Approx(10'001'000));
  // 100 after 1,000: pairs 100,000 + 5,050 -> 10.505 ms.
  CHECK(predict_prefill(w, 100, 1000).count() == doctest::Approx(110'505'000));
  CHECK(predict_prefill(w, 0, 1000) == Duration{0});
}

TEST_CASE("decode: weights once and each context, or the batch's arithmetic") {
  const TimeModel w = hand_model();
  // 10 MB + 2,000 * 1 kB = 12 MB at 1 GB/s.
  CHECK(predict_decode_step(w, 1, 2000).count() == doctest::Approx(12'000'000));
  // 100 rows * 1.1e9 / 1e12 = 110 ms, 2,000 keys * 1e4 / 1e11 = 0.2 ms.
  CHECK(predict_decode_step(w, 100, 2000).count() == doctest::Approx(110'200'000));
}

TEST_CASE("corrections scale and add") {
  TimeModel w = hand_model();
  w.correction = {.prefill = 2, .decode = 0.5, .overhead = 1ms};
  CHECK(predict_decode_step(w, 1, 2000).count() == doctest::Approx(7'000'000));
  CHECK(predict_prefill(w, 1, 0).count() == doctest::Approx(21'002'000));
  CHECK(predict_prefill(w, 0, 0) == 1ms);
}

TEST_CASE("float models are held to the float peak") {
  TimeModel w = hand_model();
  w.cost.quantized = false;
  CHECK(predict_prefill(w, 100, 0).count() == doctest::Approx(1'000'505'000));
}

TEST_CASE("an unmeasured wall is no wall; nonsense gives no nonsense") {
  TimeModel w = hand_model();
  w.limits = {};
  CHECK(predict_prefill(w, 100, 0) == Duration{0});
  CHECK(predict_decode_step(w, 4, 100) == Duration{0});
  w = hand_model();
  w.correction.prefill = std::numeric_limits<double>::quiet_NaN();
  CHECK(predict_prefill(w, 100, 0) == Duration{0});
  w.correction.prefill = std::numeric_limits<double>::infinity();
  CHECK(predict_prefill(w, 100, 0) == Duration{24h});
  w.correction.overhead = Duration::max();
  CHECK(predict_prefill(w, 100, 0) <= Duration{48h});
  w.correction.overhead = Duration::min();
  CHECK(predict_decode_step(w, 1, 2000).count() == doctest::Approx(12'000'000));
  const auto huge = std::numeric_limits<uint64_t>::max();
  CHECK(predict_prefill(hand_model(), huge, huge) == Duration{24h});
}

TEST_CASE("a transfer takes the slower link") {
  TimeModel fast = hand_model();
  TimeModel slow = hand_model();
  slow.limits.link_bytes_per_second = 1e8;
  CHECK(predict_transfer(fast, slow, 1'000'000) == 10ms);
  CHECK(predict_transfer(slow, fast, 1'000'000) == 10ms);
  slow.limits.link_bytes_per_second = 0;
  CHECK(predict_transfer(fast, slow, 1'000'000) == 2ms);
  fast.limits.link_bytes_per_second = 0;
  CHECK(predict_transfer(fast, slow, 1'000'000) == Duration{0});
}

TEST_CASE("saturation is what moved over what could have") {
  const TimeModel w = hand_model();
  CHECK(bandwidth_saturation(w.limits, 500'000'000, kMiB, 1.0) == doctest::Approx(0.5));
  CHECK(bandwidth_saturation({}, 500'000'000, kMiB, 1.0) == 0);
  CHECK(bandwidth_saturation(w.limits, 1, kMiB, 0) == 0);
  CHECK(compute_saturation(w, 250'000'000'000, 0.5) == doctest::Approx(0.5));
  CHECK(compute_saturation(TimeModel{}, 1, 1) == 0);
}

TEST_CASE("walls by name") {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(Wall::kGaps); ++i) names.insert(name(static_cast<Wall>(i)));
  CHECK(names == std::set<std::string>{"none", "dram", "cache", "compute", "link", "kv_capacity",
                                       "queue", "gaps"});
}

TEST_CASE("a limit that was passed is raised, for smaller sets too") {
  MachineLimits m;
  raise_read_limit(m, 100, 5e9);  // nothing was measured: nothing to raise
  CHECK(m.read.empty());
  const std::vector<ReadPoint> curve{{1 * kMiB, 40e9}, {16 * kMiB, 20e9}, {256 * kMiB, 10e9}};
  for (const uint64_t at :
       {uint64_t{0}, 1 * kMiB, 4 * kMiB, 16 * kMiB, 99 * kMiB, 256 * kMiB, 4096 * kMiB}) {
    CAPTURE(at);
    m.read = curve;
    const double before = read_limit(m, at);
    raise_read_limit(m, at, before * 0.9);
    CHECK(m.read == curve);
    const double seen = before * 1.1;
    raise_read_limit(m, at, seen);
    CHECK(read_limit(m, at) == doctest::Approx(seen));
    CHECK(m.read.size() <= 4);
    for (const ReadPoint& p : curve) {
      CHECK(read_limit(m, p.working_set) >= p.bytes_per_second);
      if (p.working_set < at) CHECK(read_limit(m, p.working_set) >= seen * (1 - 1e-9));
      if (p.working_set > at && at >= curve.front().working_set) {
        CHECK(read_limit(m, p.working_set) == p.bytes_per_second);
      }
    }
  }
  m.read.clear();
  for (uint64_t i = 1; i <= 16; ++i) m.read.push_back({i * kMiB, 1e9});
  raise_read_limit(m, 5 * kMiB + 7, 2e9);
  CHECK(m.read.size() == 16);
  CHECK(read_limit(m, 5 * kMiB + 7) == doctest::Approx(2e9));
}

TEST_CASE("a working set fits a cache where the curve is clearly above its far end") {
  MachineLimits m;
  CHECK_FALSE(fits_cache(m, 1));
  m.read = {{1 * kMiB, 100e9}, {16 * kMiB, 60e9}, {64 * kMiB, 21e9}, {256 * kMiB, 20e9}};
  CHECK(fits_cache(m, 1 * kMiB));
  CHECK(fits_cache(m, 16 * kMiB));
  CHECK_FALSE(fits_cache(m, 64 * kMiB));  // a twentieth is noise
  CHECK_FALSE(fits_cache(m, 1024 * kMiB));
}

TEST_CASE("the nearest wall is what fills most of the time") {
  CHECK(nearest_wall({}) == Wall::kUnknown);
  CHECK(nearest_wall({.bandwidth = 0.9, .compute = 0.2, .gaps = 0.1}) == Wall::kDram);
  CHECK(nearest_wall({.bandwidth = 0.6, .compute = 0.2, .cached = true}) == Wall::kCache);
  CHECK(nearest_wall({.bandwidth = 0.2, .compute = 0.7, .queue = 1}) == Wall::kCompute);
  CHECK(nearest_wall({.bandwidth = 0.1, .compute = 0.1, .link = 0.8}) == Wall::kLink);
  CHECK(nearest_wall({.bandwidth = 0.9, .kv_capacity = 0.95}) == Wall::kKvCapacity);
  CHECK(nearest_wall({.bandwidth = 0.3, .gaps = 0.5}) == Wall::kGaps);
  // A queue alone says nothing, unless nothing else is near.
  CHECK(nearest_wall({.bandwidth = 0.5, .queue = 1}) == Wall::kDram);
  CHECK(nearest_wall({.bandwidth = 0.2, .queue = 1}) == Wall::kQueue);
  CHECK(nearest_wall({.queue = 1}) == Wall::kQueue);
}

}  // namespace
}  // namespace headrace

#include "protocol/time_model.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>

namespace headrace {
namespace {

constexpr uint64_t kMiB = 1u << 20;

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
  CHECK(names == std::set<std::string>{"unknown", "dram", "cache", "compute", "link", "kv_capacity",
                                       "queue", "gaps"});
}

}  // namespace
}  // namespace headrace

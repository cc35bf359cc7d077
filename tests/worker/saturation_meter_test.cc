#include "worker/saturation_meter.h"

#include <doctest/doctest.h>

#include <vector>

namespace headrace::worker {
namespace {

constexpr uint64_t kMB = 1'000'000;

TimeModel hand_model() {
  TimeModel model;
  model.limits.read = {{1 * kMB, 50e9}, {100 * kMB, 10e9}};
  model.limits.int8_ops_per_second = 1e12;
  model.limits.f32_flops_per_second = 1e11;
  model.cost.quantized = true;
  return model;
}

// What one step moves and computes: 400 MB in products with 1e9 operations, 50 MB of attention with
// 1e8. At the limits above: 45 ms to read, 1 ms + 1 ms to compute.
struct Steps {
  SaturationMeter& meter;
  StepKind kind;
  uint64_t scale = 1;  // of the operations
  void run(int count, double seconds, double gap, uint64_t working_set = 500 * kMB) const {
    std::vector<kernels::OpAccount> accounts(2);
    accounts[0].op = "matmul";
    accounts[0].cost = {
        .weight_bytes = 390 * kMB, .activation_bytes = 10 * kMB, .flops = 1'000'000'000 * scale};
    accounts[1].op = "attention";
    accounts[1].cost = {.kv_bytes = 50 * kMB, .flops = 100'000'000 * scale};
    for (int i = 0; i < count; ++i) {
      meter.step({kind, seconds, gap, 1, 0, working_set, accounts});
    }
  }
};

WorkerGauges gauges(uint32_t running, uint32_t waiting = 0, uint32_t transfers = 0,
                    bool kv_short = false) {
  WorkerGauges g;
  g.running = running;
  g.waiting = waiting;
  g.transfers = transfers;
  g.kv_short = kv_short;
  return g;
}

TEST_CASE("saturation is bytes over time over the limit, gaps included") {
  SaturationMeter meter(hand_model(), Role::kDecode);
  CHECK(meter.decode() == Saturation{});
  Steps{meter, StepKind::kDecode}.run(20, 0.048, 0.002);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.decode().bandwidth == doctest::Approx(0.9));
  CHECK(meter.decode().compute == doctest::Approx(0.04));
  CHECK(meter.decode().wall == Wall::kDram);
  CHECK(meter.prefill() == Saturation{});
  CHECK(meter.working_set() == 500 * kMB);
  CHECK(meter.limits_raised() == 0);
  WorkerGauges g;
  meter.describe(g);
  CHECK(g.decode == meter.decode());
  CHECK(g.working_set == 500 * kMB);
  CHECK(g.read_limit == 10e9);
  CHECK(g.int8_peak == 1e12);
  CHECK(g.f32_peak == 1e11);
}

TEST_CASE("a GPU's products are shares of its bf16 peak, whatever its weights are") {
  TimeModel model = hand_model();
  model.limits.bf16_flops_per_second = 5e11;  // half of the int8 that does not count
  SaturationMeter meter(model, Role::kDecode);
  Steps{meter, StepKind::kDecode}.run(20, 0.048, 0.002);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.decode().bandwidth == doctest::Approx(0.9));
  CHECK(meter.decode().compute == doctest::Approx(0.044));  // 1.1e9 operations in 50 ms
  WorkerGauges g;
  meter.describe(g);
  CHECK(g.bf16_peak == 5e11);
}

TEST_CASE("the window forgets: what is shown follows the last seconds") {
  SaturationMeter meter(hand_model(), Role::kDecode);
  Steps{meter, StepKind::kDecode}.run(100, 0.05, 0);
  Steps{meter, StepKind::kDecode}.run(40, 0.09, 0);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.decode().bandwidth == doctest::Approx(0.5));
}

TEST_CASE("small working sets have the cache as wall, many operations the arithmetic") {
  SaturationMeter meter(hand_model(), Role::kBoth);
  Steps{meter, StepKind::kDecode}.run(20, 0.02, 0, 1 * kMB);
  Steps{meter, StepKind::kPrefill, 100}.run(10, 0.25, 0, 1 * kMB);
  meter.sweep(gauges(2), 0.1);
  CHECK(meter.decode().bandwidth == doctest::Approx(0.45));
  CHECK(meter.decode().wall == Wall::kCache);
  CHECK(meter.prefill().compute == doctest::Approx(0.8));
  CHECK(meter.prefill().wall == Wall::kCompute);
}

TEST_CASE("a mixed step counts for both phases") {
  SaturationMeter meter(hand_model(), Role::kBoth);
  Steps{meter, StepKind::kMixed}.run(10, 0.09, 0);
  meter.sweep(gauges(2), 0.1);
  CHECK(meter.prefill().bandwidth == doctest::Approx(0.5));
  CHECK(meter.decode() == meter.prefill());
}

TEST_CASE("a limit that is passed was none: it is raised and nothing shows more than 1") {
  SaturationMeter meter(hand_model(), Role::kDecode);
  const Steps steps{meter, StepKind::kDecode};
  steps.run(2, 0.03, 0);  // too short to prove anything
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.decode().bandwidth == 1);
  CHECK(meter.limits_raised() == 0);
  steps.run(100, 0.03, 0);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.limits_raised() == 1);
  CHECK(read_limit(meter.limits(), 500 * kMB) == doctest::Approx(15e9));
  CHECK(meter.decode().bandwidth == doctest::Approx(1));
  steps.run(100, 0.06, 0);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.limits_raised() == 1);
  CHECK(meter.decode().bandwidth == doctest::Approx(0.5));  // of what was seen, not of the first
}

TEST_CASE("peaks of arithmetic are raised alike") {
  SaturationMeter meter(hand_model(), Role::kPrefill);
  Steps{meter, StepKind::kPrefill, 100}.run(10, 0.1, 0);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.prefill().compute == doctest::Approx(1));
  CHECK(meter.limits().int8_ops_per_second == doctest::Approx(2e12));
  CHECK(meter.limits_raised() == 1);
}

// Five hand-offs, each with a step of 0.1 s and ten sweeps in which it is under way and nothing
// runs; in the first `arriving` of those a chunk is on its way in.
SaturationMeter after_handoffs(Role role, int arriving, uint32_t running = 0) {
  SaturationMeter meter(hand_model(), role);
  const StepKind kind = role == Role::kPrefill ? StepKind::kPrefill : StepKind::kDecode;
  for (int transfer = 0; transfer < 5; ++transfer) {
    Steps{meter, kind, 40}.run(1, 0.1, 0);
    meter.sweep(gauges(0, 0, 1), 0.1);
    for (int i = 0; i < 10; ++i) {
      WorkerGauges seen = gauges(running, 0, 1);
      seen.kv_arriving = i < arriving;
      meter.sweep(seen, 0.1);
    }
  }
  return meter;
}

TEST_CASE("a prefill worker that waits for the link says so") {
  const SaturationMeter meter = after_handoffs(Role::kPrefill, 0);
  CHECK(meter.prefill().wall == Wall::kLink);
  CHECK(meter.decode() == Saturation{});
  CHECK(meter.prefill().compute == doctest::Approx(0.8));  // of its steps
}

TEST_CASE("a decode worker starves at the link only while chunks come and nothing runs") {
  CHECK(after_handoffs(Role::kDecode, 10).decode().wall == Wall::kLink);
  CHECK(after_handoffs(Role::kDecode, 10).decode().compute == doctest::Approx(0.8));
  CHECK(after_handoffs(Role::kDecode, 10).prefill() == Saturation{});
  // Its peer still computes.
  CHECK(after_handoffs(Role::kDecode, 0).decode().wall == Wall::kCompute);
  // Another answer goes on meanwhile.
  CHECK(after_handoffs(Role::kDecode, 10, 1).decode().wall == Wall::kCompute);
}

TEST_CASE("a decode worker that only receives is at the link, not idle") {
  SaturationMeter meter(hand_model(), Role::kDecode);
  WorkerGauges seen = gauges(0, 0, 1);
  seen.kv_arriving = true;
  for (int i = 0; i < 200; ++i) meter.sweep(seen, 0.1);
  CHECK(meter.decode().wall == Wall::kLink);
  for (int i = 0; i < 60; ++i) meter.sweep(gauges(0), 0.1);
  CHECK(meter.decode() == Saturation{});
}

TEST_CASE("missing blocks, a full batch and idle time between steps have names") {
  const auto wall = [](const WorkerGauges& seen, double gap) {
    SaturationMeter meter(hand_model(), Role::kDecode);
    for (int i = 0; i < 5; ++i) {
      Steps{meter, StepKind::kDecode}.run(1, 0.2, gap);
      meter.sweep(seen, 0.1);
    }
    return meter.decode().wall;
  };
  CHECK(wall(gauges(4, 2, 0, true), 0) == Wall::kKvCapacity);
  CHECK(wall(gauges(4, 2), 0) == Wall::kQueue);
  CHECK(wall(gauges(4), 0) == Wall::kDram);
  CHECK(wall(gauges(4), 0.3) == Wall::kGaps);
}

TEST_CASE("an idle worker is not saturated, one in a long step still is") {
  SaturationMeter meter(hand_model(), Role::kDecode);
  Steps{meter, StepKind::kDecode}.run(20, 0.05, 0);
  for (int i = 0; i < 200; ++i)
    meter.sweep(gauges(1), 0.1);  // its sequence runs, nothing has ended
  CHECK(meter.decode().wall == Wall::kDram);
  meter.sweep(gauges(0), 0.1);
  CHECK(meter.decode() == Saturation{});
}

TEST_CASE("when the last step is longer ago than a scrape's usual interval, nothing is claimed") {
  SaturationMeter meter(hand_model(), Role::kBoth);
  Steps{meter, StepKind::kMixed}.run(20, 0.05, 0);
  for (int i = 0; i < 45; ++i) meter.sweep(gauges(0), 0.1);
  CHECK(meter.decode().wall == Wall::kDram);
  for (int i = 0; i < 10; ++i) meter.sweep(gauges(0), 0.1);
  CHECK(meter.decode() == Saturation{});
  CHECK(meter.prefill() == Saturation{});
}

TEST_CASE("a phase that did not run is idle although the other one goes on") {
  SaturationMeter meter(hand_model(), Role::kBoth);
  Steps{meter, StepKind::kPrefill}.run(20, 0.05, 0);
  for (int i = 0; i < 55; ++i) {
    Steps{meter, StepKind::kDecode}.run(1, 0.1, 0);
    meter.sweep(gauges(1), 0.1);
  }
  CHECK(meter.prefill() == Saturation{});
  CHECK(meter.decode().wall == Wall::kDram);
}

TEST_CASE("without measured limits nothing is claimed") {
  SaturationMeter meter({}, Role::kBoth);
  Steps{meter, StepKind::kMixed}.run(20, 0.05, 0);
  meter.sweep(gauges(1), 0.1);
  CHECK(meter.decode() == Saturation{});
}

}  // namespace
}  // namespace headrace::worker

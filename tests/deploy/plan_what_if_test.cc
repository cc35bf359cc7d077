#include "deploy/cli/plan_what_if.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

PlanCase base() {
  PlanCase at;
  at.format.weights = PlanWeights::kBf16;
  at.machine = plan_machine(*plan_gpu("h200"), std::nullopt, std::nullopt);
  return at;
}

TEST_CASE("each remedy changes one thing") {
  const PlanCase at = base();
  CHECK(plan_what_if(at, "flops=2x")->machine.flops == 2 * at.machine.flops);
  CHECK(plan_what_if(at, "bandwidth=1.5x")->machine.read == 1.5 * at.machine.read);
  CHECK(plan_what_if(at, "memory=0.5x")->machine.memory == at.machine.memory / 2);
  CHECK(plan_what_if(at, "w4")->format.weights == PlanWeights::kW4);
  CHECK(plan_what_if(at, "w8")->format.weights == PlanWeights::kW8);
  CHECK(plan_what_if(at, "bf16")->format.weights == PlanWeights::kBf16);
  CHECK(plan_what_if(at, "kv=int8")->format.kv == kernels::KvType::kInt8);
  CHECK(plan_what_if(at, "kv=fp8")->format.kv == kernels::KvType::kFp8);
  CHECK(plan_what_if(at, "group=128")->format.group == 128);
  CHECK(plan_what_if(at, "batch=16")->batch == 16);
  CHECK(plan_what_if(at, "context=8192")->context == 8192);
  // An output matrix of its own type goes with the rest.
  PlanCase mixed = at;
  mixed.format.output = PlanWeights::kW8;
  CHECK(!plan_what_if(mixed, "w4")->format.output);
}

TEST_CASE("what is no remedy is none") {
  for (const char* words :
       {"",          "=",          "flops",      "flops=",     "flops=2",   "flops=x",
        "flops=0x",  "flops=-1x",  "flops=101x", "flops=nanx", "flops=2xx", "w5",
        "file",      "kv=f32",     "kv=",        "kv",         "batch=0",   "batch=-1",
        "batch=1.5", "batch=4097", "batch=16x",  "group=16",   "context=0", "context=1048577",
        "speed=2x",  "batch =16",  " w4",        "W4"}) {
    CAPTURE(std::string(words));
    CHECK(!plan_what_if(base(), words));
  }
}

TEST_CASE("what a remedy buys") {
  const PlanModel m = *plan_shape("8b");
  const PlanOutcome before = plan_outcome(m, base());
  const auto gain = [&](const char* words) {
    return plan_outcome(m, *plan_what_if(base(), words)).per_second / before.per_second;
  };
  CHECK(before.wall() == Wall::kDram);
  CHECK(before.fits);
  CHECK(gain("flops=2x") == doctest::Approx(1.0));
  CHECK(gain("bandwidth=2x") == doctest::Approx(2.0));
  CHECK(gain("w4") > 3);
  CHECK(gain("w4") < 32.0 / 9);
  CHECK(gain("batch=16") > 10);
  // A prompt is computing, so there it is the other way round.
  CHECK(plan_outcome(m, *plan_what_if(base(), "flops=2x")).prefill < 0.6 * before.prefill);
  CHECK(plan_outcome(m, *plan_what_if(base(), "bandwidth=2x")).prefill > 0.9 * before.prefill);
}

TEST_CASE("what does not fit has that for its wall") {
  const PlanModel m = *plan_shape("70b");
  const PlanOutcome before = plan_outcome(m, base());
  CHECK(!before.fits);
  CHECK(before.wall() == Wall::kKvCapacity);
  CHECK(plan_outcome(m, *plan_what_if(base(), "memory=2x")).fits);
  CHECK(plan_outcome(m, *plan_what_if(base(), "w8")).fits);
}

TEST_CASE("names of formats") {
  CHECK(parse_plan_weights("w4") == PlanWeights::kW4);
  CHECK(parse_plan_weights("file") == PlanWeights::kFile);
  CHECK(!parse_plan_weights("fp16"));
}

}  // namespace
}  // namespace headrace::cli

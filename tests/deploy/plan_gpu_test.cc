#include "deploy/cli/plan_gpu.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

TEST_CASE("what was measured is taken, the rest by the same share of the data sheet") {
  const auto h200 = plan_gpu("h200");
  REQUIRE(h200);
  const PlanMachine measured = plan_machine(*h200, std::nullopt, std::nullopt);
  CHECK(measured.measured);
  CHECK(measured.read == 4.3e12);
  CHECK(measured.flops == 790e12);
  CHECK(measured.memory == 141e9);
  const auto h100 = plan_gpu("h100");
  REQUIRE(h100);
  const PlanMachine assumed = plan_machine(*h100, std::nullopt, std::nullopt);
  CHECK(!assumed.measured);
  CHECK(assumed.read == doctest::Approx(3.001e12).epsilon(0.001));
  CHECK(assumed.flops == doctest::Approx(790e12).epsilon(0.001));
}

TEST_CASE("what is given replaces the table") {
  const PlanMachine m = plan_machine(*plan_gpu("a100"), 1e12, 2e14);
  CHECK(m.read == 1e12);
  CHECK(m.flops == 2e14);
  CHECK(m.read_given);
  CHECK(m.flops_given);
  CHECK(!plan_machine(*plan_gpu("a100"), 1e12, std::nullopt).flops_given);
}

TEST_CASE("all GPUs of the list are known, and no other") {
  for (const std::string_view name : kPlanGpus) {
    const auto gpu = plan_gpu(name);
    REQUIRE(gpu);
    CHECK(gpu->read > 1e12);
    CHECK(gpu->flops > 1e14);
    CHECK(gpu->link > 1e11);
    CHECK(gpu->cache < gpu->memory);
  }
  CHECK(!plan_gpu("H200"));
  CHECK(!plan_gpu(""));
}

}  // namespace
}  // namespace headrace::cli

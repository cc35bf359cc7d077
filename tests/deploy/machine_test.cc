#include "deploy/cli/machine.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/deploy/capture.h"

namespace headrace::cli {
namespace {

constexpr MeasurePlan kTiny{0.05, uint64_t{4} << 20};

TEST_CASE("limits are measured once, kept, and measured again when forgotten") {
  char folder[] = "/tmp/headrace-machine-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  int measured = 0;
  const auto ask = [&] {
    bool now = false;
    auto limits =
        machine_limits(folder, kernels::CpuPath::kPortable, 1, kTiny, [&](double) { now = true; });
    measured += now ? 1 : 0;
    return limits;
  };
  const MachineLimits first = ask();
  REQUIRE(!first.read.empty());
  CHECK(first.read[0].bytes_per_second > 0);
  CHECK(ask() == first);
  CHECK(measured == 1);
  forget_limits(folder);
  ask();
  CHECK(measured == 2);
  std::filesystem::remove_all(folder);
}

TEST_CASE("limits that cannot be kept are still measured, and that is said") {
  Capture errors(STDERR_FILENO);
  const auto limits =
      machine_limits("/dev/null/x", kernels::CpuPath::kPortable, 1, kTiny, [](double) {});
  CHECK(!limits.read.empty());
  CHECK(errors.text().find("headrace: measured limits are not kept: ") == 0);
}

TEST_CASE("a device's limits are those of its processor; a GPU that is not there has none") {
  char folder[] = "/tmp/headrace-machine-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const auto known = machine_limits(folder, kernels::CpuPath::kPortable, 1, kTiny, {});
  CHECK(device_limits(folder, "cpu:portable", 1, {}) == known);
  CHECK(device_limits(folder, "reference", 1, {}) == MachineLimits{});
  CHECK(device_limits(folder, "cuda:99", 1, {}) == MachineLimits{});
  CHECK_FALSE(find_gpu("cuda:99"));
  CHECK_FALSE(find_gpu("cpu"));
  if (!kernels::cuda_is_built()) {
    Capture errors(STDERR_FILENO);
    CHECK(gpu_limits(folder, {.id = "00"}, kTiny, {}) == kernels::GpuLimits{});
    CHECK(errors.text().find("headrace: a GPU's limits are not measured: ") == 0);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("facts of the machine are plausible") {
  CHECK(usable_threads(3) == 3);
  CHECK(usable_threads(0) >= 1);
  CHECK(usable_threads(-1) == usable_threads(0));
  CHECK(memory_available() > (uint64_t{1} << 20));
  CHECK(!processor_name().empty());
}

}  // namespace
}  // namespace headrace::cli

#include <cmath>
#include <vector>

#include "kernels/cuda_device.h"
#include "kernels/limits.h"
#include "tests/simt/cudart/control.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

namespace headrace::kernels {
namespace {

void check_rate(double rate) {
  CHECK(std::isfinite(rate));
  CHECK(rate > 0);
}

TEST_CASE("a GPU is measured in each respect, as far as the time reaches, and left as it was") {
  for (const simt::Streams mode : {simt::Streams::kLazy, simt::Streams::kThreaded}) {
    simt::reset(mode, 2);
    std::vector<double> seen;
    const GpuLimits limits = measure_gpu_limits(1, 0.2, 64 << 20, [&](double share) {
      CHECK(share > (seen.empty() ? 0 : seen.back()));
      seen.push_back(share);
    });
    REQUIRE(!limits.read.empty());
    CHECK(limits.read.front().working_set == 1 << 20);
    for (size_t i = 0; i < limits.read.size(); i++) {
      check_rate(limits.read[i].bytes_per_second);
      if (i == 0) continue;
      CHECK(limits.read[i].working_set == 2 * limits.read[i - 1].working_set);
      CHECK(limits.read[i].bytes_per_second <= limits.read[i - 1].bytes_per_second);
    }
    check_rate(limits.bf16_flops_per_second);
    check_rate(limits.to_device_bytes_per_second);
    check_rate(limits.to_host_bytes_per_second);
    check_rate(limits.launch_seconds);
    check_rate(limits.graph_seconds);
    REQUIRE(!seen.empty());
    CHECK(seen.back() == doctest::Approx(1));
    CHECK(simt::leaks().empty());
    CHECK(simt::take_reports().empty());
  }
  simt::reset();
}

TEST_CASE("memory that is short ends the sets, a device that fails is an error") {
  simt::reset(simt::Streams::kLazy, 1);
  simt::fail_allocation(4);  // the second set's memory
  // Time enough that a busy machine comes to the second set.
  CHECK(measure_gpu_limits(0, 2, 64 << 20, [](double) {}).read.size() == 1);
  simt::set_memory(0, 4 << 20);  // less than copies are measured with
  CHECK_THROWS_AS(measure_gpu_limits(0, 0.01, 1 << 20, [](double) {}), DeviceError);
  simt::set_memory(0, 1 << 30);
  simt::fail_launch(1);
  CHECK_THROWS_AS(measure_gpu_limits(0, 0.1, 1 << 20, [](double) {}), DeviceError);
  simt::reset();
  CHECK_THROWS_AS(measure_gpu_limits(5, 0.1, 1 << 20, [](double) {}), DeviceError);
}

}  // namespace
}  // namespace headrace::kernels

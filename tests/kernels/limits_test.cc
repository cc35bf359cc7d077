#include "kernels/limits.h"

#include <doctest/doctest.h>

#include "tests/kernels/harness.h"

namespace headrace::kernels {
namespace {

TEST_CASE("every path measures rates, over growing sets up to the largest") {
  for (CpuPath path : testing::paths()) {
    for (int threads : {1, 2}) {
      CAPTURE(name(path));
      std::vector<double> seen;
      const uint64_t most = (5 << 20) + 4096;
      const CpuLimits limits = measure_cpu_limits(path, threads, 0.02, most, [&](double share) {
        CHECK(share > (seen.empty() ? 0 : seen.back()));
        seen.push_back(share);
      });
      REQUIRE(limits.read.size() == 4);  // 1, 2, 4 MiB and the largest
      for (size_t i = 0; i < limits.read.size(); i++) {
        const ReadRate& rate = limits.read[i];
        CHECK(rate.bytes_per_second > 0);
        if (i > 0) CHECK(rate.working_set > limits.read[i - 1].working_set);
      }
      CHECK(limits.read.back().working_set <= most);
      CHECK(limits.read.back().working_set > most - 8192);
      CHECK(limits.int8_ops_per_second > 0);
      CHECK(limits.f32_flops_per_second > 0);
      REQUIRE(!seen.empty());
      CHECK(seen.back() == doctest::Approx(1));
    }
  }
}

TEST_CASE("one working set alone") {
  for (CpuPath path : testing::paths()) {
    const ReadRate rate = measure_read(path, 2, 3 << 20, 0.01);
    CHECK(rate.working_set == 3 << 20);
    CHECK(rate.bytes_per_second > 0);
  }
}

TEST_CASE("a set below the smallest is measured at the smallest") {
  const CpuLimits limits = measure_cpu_limits(CpuPath::kPortable, 1, 0.001, 10, [](double) {});
  REQUIRE(limits.read.size() == 1);
  CHECK(limits.read[0].working_set == 1 << 20);
}

TEST_CASE("the limit at a working set") {
  CpuLimits limits;
  CHECK(read_limit(limits, 1000) == 0);
  limits.read = {{1 << 20, 100}, {1 << 22, 60}, {1 << 24, 20}};
  CHECK(read_limit(limits, 1) == 100);
  CHECK(read_limit(limits, 1 << 20) == 100);
  CHECK(read_limit(limits, 1 << 21) == doctest::Approx(80));
  CHECK(read_limit(limits, 1 << 22) == doctest::Approx(60));
  CHECK(read_limit(limits, 1 << 23) == doctest::Approx(40));
  CHECK(read_limit(limits, uint64_t{1} << 40) == 20);
}

}  // namespace
}  // namespace headrace::kernels

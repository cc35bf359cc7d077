#include "kernels/bench.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/kernels/harness.h"

namespace headrace::kernels {
namespace {

BenchOptions tiny(CpuPath path) {
  BenchOptions o;
  o.path = path;
  o.threads = 2;
  o.shape = {64, 96, 4, 2, 16, 128, WeightType::kW4, WeightType::kBf16};
  o.rows = {1, 3};
  o.context = 40;
  o.working_set = 1 << 20;
  o.seconds = 0.02;
  return o;
}

TEST_CASE("every operation is measured, for every number of rows, on every path") {
  for (CpuPath path : testing::paths()) {
    double last = -1;
    const BenchReport report = bench_cpu(tiny(path), [&](double p) {
      CHECK(p >= last);
      CHECK(p <= 1);
      last = p;
    });
    CHECK(last == 1);
    std::map<std::string, int> seen;
    for (const BenchRow& row : report.rows) {
      CAPTURE(row.op);
      CAPTURE(row.what);
      seen[row.op]++;
      CHECK((row.rows == 1 || row.rows == 3));
      CHECK(row.seconds > 0);
      CHECK(row.cost.bytes() > 0);
      CHECK(row.memory_share > 0);
      CHECK(row.working_set >= row.cost.bytes());
    }
    CHECK(seen["matmul"] == 10);  // qkv, out, gate_up, down, head
    for (const char* op : {"embed", "rms_norm", "quantize_rows", "rope_append_kv", "attention",
                           "swiglu", "adjust_logits", "log_probs", "sample"}) {
      CAPTURE(op);
      CHECK(seen[op] == 2);
    }
    CHECK_FALSE(report.limits.read.empty());
  }
}

}  // namespace
}  // namespace headrace::kernels

#include <doctest/doctest.h>

#include "kernels/bench.h"

namespace headrace::kernels {
namespace {

BenchReport known() {
  BenchReport report;
  report.device = "cpu x";
  report.limits.read = {{1 << 20, 100e9}};
  report.limits.int8_ops_per_second = 500e9;
  report.limits.f32_flops_per_second = 50e9;
  BenchRow row;
  row.op = "matmul";
  row.what = "qkv 64x32 w4";
  row.rows = 2;
  row.seconds = 1e-5;
  row.cost = {1000, 0, 200, 5000};
  row.working_set = 1 << 20;
  row.memory_share = 0.25;
  row.compute_share = 0.125;
  report.rows = {row};
  return report;
}

TEST_CASE("the report as markdown") {
  const std::string text = markdown(known());
  CHECK(text.find("| read | 1 MiB | 100.0 GB/s |\n") != std::string::npos);
  CHECK(text.find("| int8 | | 500 GOP/s |\n") != std::string::npos);
  CHECK(text.find("| matmul | qkv 64x32 w4 | 2 | 10.0 | 0.1 | 0.5 | memory | 25 % |\n") !=
        std::string::npos);
}

TEST_CASE("the report as JSON") {
  CHECK(json(known()) ==
        "{\"device\": \"cpu x\", \"limits\": {\"read\": [{\"working_set\": 1048576, "
        "\"bytes_per_second\": 1e+11}], \"int8_ops_per_second\": 5e+11, "
        "\"f32_flops_per_second\": 5e+10}, \"operations\": [{\"op\": \"matmul\", \"shape\": "
        "\"qkv 64x32 w4\", \"rows\": 2, \"seconds\": 1e-05, \"bytes\": 1200, \"flops\": 5000, "
        "\"working_set\": 1048576, \"memory_share\": 0.2500, \"compute_share\": 0.1250}]}");
}

}  // namespace
}  // namespace headrace::kernels

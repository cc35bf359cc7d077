#include "deploy/cli/remote.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

TEST_CASE("devices are known by the names workers give them") {
  CHECK(parse_device_name("cpu avx2, 4 threads") == NamedDevice{kernels::CpuPath::kAvx2, 4});
  CHECK(parse_device_name("cpu portable, 1 thread") == NamedDevice{kernels::CpuPath::kPortable, 1});
  for (const char* text : {"", "reference", "cpu", "cpu avx2", "cpu avx2, x threads",
                           "cpu amx, 2 threads", "cpu avx2, 0 threads"}) {
    CAPTURE(text);
    CHECK(!parse_device_name(text));
  }
  const auto device = kernels::make_cpu_device(kernels::CpuPath::kPortable, 1);
  CHECK(parse_device_name(device->name()) == NamedDevice{kernels::CpuPath::kPortable, 1});
}

TEST_CASE("limits of another machine are not known") {
  client::ClusterStatus status;
  status.workers.push_back({});
  status.workers[0].role = "decode";
  status.workers[0].device = "cpu portable, 1 thread";
  CHECK(limits_of(status, {"192.0.2.1", 7400}, "/dev/null/x").read.empty());
  status.workers[0].role = "prefill";
  CHECK(limits_of(status, {"127.0.0.1", 7400}, "/dev/null/x").read.empty());
}

}  // namespace
}  // namespace headrace::cli

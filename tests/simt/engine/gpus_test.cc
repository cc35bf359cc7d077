#include <doctest/doctest.h>

#include <set>

#include "kernels/cuda_device.h"
#include "tests/simt/cudart/control.h"

namespace headrace::kernels {
namespace {

TEST_CASE("each GPU has a name, an id of its own, memory and a capability") {
  simt::reset(simt::Streams::kLazy, 3);
  simt::set_memory(1, size_t{3} << 30);
  simt::set_capability(8, 6);
  std::string why;
  const std::vector<GpuInfo> gpus = cuda_gpus(&why);
  REQUIRE(gpus.size() == 3);
  std::set<std::string> ids;
  for (int i = 0; i < 3; i++) {
    const GpuInfo& gpu = gpus[static_cast<size_t>(i)];
    CHECK(gpu.ordinal == i);
    CHECK(gpu.name == "Emulated device " + std::to_string(i));
    CHECK(gpu.id.size() == 32);
    CHECK(gpu.id.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(gpu.memory == (i == 1 ? size_t{3} << 30 : size_t{1} << 30));
    CHECK(gpu.capability == 86);
    ids.insert(gpu.id);
  }
  CHECK(ids.size() == 3);
  CHECK(why.empty());
  CHECK(simt::leaks().empty());  // asking takes nothing
  simt::reset();
}

}  // namespace
}  // namespace headrace::kernels

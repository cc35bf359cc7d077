#include "kernels/cuda/runtime.h"

#include <new>
#include <string>

#include "kernels/device.h"
#include "tests/simt/cudart/control.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

namespace headrace::cuda {
namespace {

struct Bench {
  Bench() { simt::reset(); }
  ~Bench() { simt::reset(); }
};

TEST_CASE("an error names the device, what failed and the runtime's words") {
  check(cudaSuccess, 3, "nothing");
  CHECK_THROWS_WITH_AS(
      check(cudaErrorLaunchFailure, 3, "matmul"),
      (std::string("cuda:3: matmul: ") + cudaGetErrorString(cudaErrorLaunchFailure)).c_str(),
      kernels::DeviceError);
}

TEST_CASE("memory is zeroed, ends with its owner, and is a bad_alloc where there is none") {
  const Bench bench;
  {
    const Stream stream(0);
    const kernels::Buffer memory = device_memory(0, 100, stream);
    const kernels::Buffer host = pinned_memory(0, 100);
    host.data()[99] = std::byte{1};
    check(cudaMemcpyAsync(host.data(), memory.data(), 100, cudaMemcpyDeviceToHost, stream.get()), 0,
          "copy");
    stream.wait();
    CHECK(host.data()[99] == std::byte{0});
    CHECK(device_memory(0, 0, stream).data() == nullptr);
    simt::fail_allocation(1);
    CHECK_THROWS_AS(device_memory(0, 100, stream), std::bad_alloc);
    CHECK(device_memory(0, 100, stream).size() == 100);  // it was told once
  }
  CHECK(simt::leaks().empty());
}

TEST_CASE("a device that has gone is told by whoever waits") {
  const Bench bench;
  const Stream stream(0);
  simt::lose_device(0);
  CHECK_THROWS_AS(stream.wait(), kernels::DeviceError);
}

}  // namespace
}  // namespace headrace::cuda

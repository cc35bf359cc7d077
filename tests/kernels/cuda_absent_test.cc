#include <doctest/doctest.h>

#include <string>

#include "kernels/cuda_device.h"
#include "kernels/limits.h"

using namespace headrace::kernels;

TEST_CASE("a build without CUDA says that it is one") {
  if (cuda_is_built()) return;
  std::string why;
  CHECK(cuda_devices(&why) == 0);
  CHECK(why.find("without CUDA") != std::string::npos);
  CHECK_THROWS_WITH_AS(make_cuda_device({}), why.c_str(), DeviceError);
  CHECK_THROWS_WITH_AS(measure_gpu_limits(0, 1, 1, [](double) {}), why.c_str(), DeviceError);
  why.clear();
  CHECK(cuda_gpus(&why).empty());
  CHECK(why.find("without CUDA") != std::string::npos);
}

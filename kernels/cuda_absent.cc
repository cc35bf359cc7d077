#include "kernels/cuda_device.h"
#include "kernels/limits.h"

namespace headrace::kernels {
namespace {

constexpr const char* kAbsent = "this build is without CUDA (preset cuda has it)";

}  // namespace

bool cuda_is_built() { return false; }

int cuda_devices(std::string* why) {
  if (why) *why = kAbsent;
  return 0;
}

std::vector<GpuInfo> cuda_gpus(std::string* why) {
  cuda_devices(why);
  return {};
}

GpuLimits measure_gpu_limits(int, double, uint64_t, const std::function<void(double)>&) {
  throw DeviceError(kAbsent);
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions&) { throw DeviceError(kAbsent); }

}  // namespace headrace::kernels

#include <cuda_runtime_api.h>

#include <cstdio>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda_device.h"

namespace headrace::kernels {

std::vector<GpuInfo> cuda_gpus(std::string* why) {
  std::vector<GpuInfo> found;
  const int count = cuda_devices(why);
  for (int ordinal = 0; ordinal < count; ordinal++) {
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, ordinal), ordinal, "its properties");
    GpuInfo& gpu = found.emplace_back();
    gpu.ordinal = ordinal;
    gpu.name = properties.name;
    for (const char byte : properties.uuid.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte) & 0xff);
      gpu.id += digits;
    }
    gpu.memory = properties.totalGlobalMem;
    gpu.capability = properties.major * 10 + properties.minor;
  }
  return found;
}

}  // namespace headrace::kernels

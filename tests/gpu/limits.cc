#include "kernels/limits.h"

#include <algorithm>

#include "kernels/cuda_device.h"
#include "tests/gpu/parts.h"

// What the GPU can do at most (kernels/cuda/roofs.h), and what it is.

namespace headrace::gpu {

namespace {

kernels::GpuInfo info_of(int ordinal) {
  std::string why;
  const auto gpus = kernels::cuda_gpus(&why);
  const auto gpu =
      std::find_if(gpus.begin(), gpus.end(), [&](const auto& g) { return g.ordinal == ordinal; });
  if (gpu == gpus.end())
    throw kernels::DeviceError("cuda:" + std::to_string(ordinal) + " is not there" +
                               (why.empty() ? "" : ": " + why));
  return *gpu;
}

}  // namespace

void describe_device(int ordinal) {
  const kernels::GpuInfo gpu = info_of(ordinal);
  int processors = 0;
  cuda::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal), ordinal,
              "its processors");
  emit({{"gpu", gpu.name},
        {"memory", gpu.memory},
        {"capability", gpu.capability},
        {"processors", processors},
        {"runtime", CUDART_VERSION}});
}

void measure_limits(int ordinal, bool tiny, double seconds) {
  const uint64_t memory = info_of(ordinal).memory;
  const uint64_t most = tiny ? uint64_t{2} << 20 : std::min(memory / 4, uint64_t{4} << 30);
  const kernels::GpuLimits l = kernels::measure_gpu_limits(ordinal, seconds, most, [](double) {});
  for (const kernels::ReadRate& r : l.read)
    emit({{"limit", "read"}, {"working_set", r.working_set}, {"value", r.bytes_per_second}});
  emit({{"limit", "bf16"}, {"value", l.bf16_flops_per_second}});
  emit({{"limit", "to_device"}, {"value", l.to_device_bytes_per_second}});
  emit({{"limit", "to_host"}, {"value", l.to_host_bytes_per_second}});
  emit({{"limit", "launch"}, {"value", l.launch_seconds}});
  emit({{"limit", "graph"}, {"value", l.graph_seconds}});
  emit({{"limit", "int8"}, {"left_out", "no kernel multiplies integers"}});
}

}  // namespace headrace::gpu

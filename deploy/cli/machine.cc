#include "deploy/cli/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "kernels/limits.h"
#include "protocol/files.h"
#include "worker/host_limits.h"

namespace headrace::cli {

int usable_threads(int wanted) {
  if (wanted > 0) return wanted;
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

uint64_t memory_available() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  uint64_t kilobytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes << 10;
  }
  return uint64_t{1} << 30;  // not known: be modest
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

MachineLimits machine_limits(const std::string& state_dir, kernels::CpuPath path, int threads,
                             const MeasurePlan& plan, const std::function<void(double)>& progress) {
  const worker::HostLimitsKey key{worker::host_identity(), path, usable_threads(threads)};
  kernels::CpuLimits measured;
  const auto measure = [&] {
    // No larger than memory allows, so that measuring never disturbs what runs already.
    const uint64_t bytes = std::min(plan.bytes_max, memory_available() / 4);
    measured =
        kernels::measure_cpu_limits(path, key.threads, plan.seconds, bytes, [&](double share) {
          if (progress) progress(share);
        });
    return measured;
  };
  OsFiles files;
  auto limits = worker::host_limits(files, state_dir, key, measure);
  if (limits) return *limits;
  say("measured limits are not kept: " + limits.error().message);
  if (measured.read.empty()) measure();
  MachineLimits unkept;
  for (const auto& rate : measured.read) {
    unkept.read.push_back({rate.working_set, rate.bytes_per_second});
  }
  unkept.int8_ops_per_second = measured.int8_ops_per_second;
  unkept.f32_flops_per_second = measured.f32_flops_per_second;
  return unkept;
}

kernels::GpuLimits gpu_limits(const std::string& state_dir, const kernels::GpuInfo& gpu,
                              const MeasurePlan& plan,
                              const std::function<void(double)>& progress) {
  kernels::GpuLimits measured;
  const auto measure = [&] {
    measured = kernels::measure_gpu_limits(
        gpu.ordinal, plan.seconds, std::min(plan.bytes_max, gpu.memory / 4), [&](double share) {
          if (progress) progress(share);
        });
    return measured;
  };
  OsFiles files;
  try {
    const worker::GpuLimitsKey key{worker::host_identity(), gpu.id};
    auto limits = worker::gpu_limits(files, state_dir, key, measure);
    if (limits) return *limits;
    say("measured limits are not kept: " + limits.error().message);
    return measured.read.empty() ? measure() : measured;
  } catch (const kernels::DeviceError& why) {
    say("a GPU's limits are not measured: " + std::string(why.what()));
    return {};
  }
}

MachineLimits device_limits(const std::string& state_dir, const std::string& device, int threads,
                            const std::function<void(double)>& progress) {
  if (const auto gpu = find_gpu(device))
    return worker::machine_limits(gpu_limits(state_dir, *gpu, kQuickMeasure, progress));
  const auto path = cpu_path_of(device);
  if (!path) return {};
  return machine_limits(state_dir, *path, threads, kQuickMeasure, progress);
}

std::optional<kernels::GpuInfo> find_gpu(const std::string& device) {
  const auto ordinal = gpu_of(device);
  if (!ordinal) return std::nullopt;
  const auto gpus = kernels::cuda_gpus(nullptr);
  if (static_cast<size_t>(*ordinal) >= gpus.size()) return std::nullopt;
  return gpus[static_cast<size_t>(*ordinal)];
}

void forget_limits(const std::string& state_dir) {
  OsFiles files;
  const Status removed = files.remove(state_dir + "/host-limits.json");
  if (!removed.ok()) say(removed.message);
}

}  // namespace headrace::cli

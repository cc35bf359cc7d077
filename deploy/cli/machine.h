#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kernels/cuda_device.h"
#include "kernels/device.h"
#include "kernels/limits.h"
#include "protocol/time_model.h"

namespace headrace::cli {

int usable_threads(int wanted);  // <= 0: all that this process may use
uint64_t memory_available();     // bytes; of the machine
std::string processor_name();    // as /proc/cpuinfo has it

// How patiently the machine is measured.
struct MeasurePlan {
  double seconds;
  uint64_t bytes_max;  // largest working set
};
inline constexpr MeasurePlan kQuickMeasure{0.8, uint64_t{256} << 20};  // once, at a first start
inline constexpr MeasurePlan kPatientMeasure{4.0, uint64_t{1} << 30};  // when asked for

// Limits of this machine for a path and a count of threads (<= 0: all): those kept in `state_dir`,
// else measured now and kept. Limits that cannot be kept are given all the same, and said so.
MachineLimits machine_limits(const std::string& state_dir, kernels::CpuPath path, int threads,
                             const MeasurePlan& plan, const std::function<void(double)>& progress);

// The same of a GPU, which takes at most a quarter of its memory for a moment. One that cannot be
// measured has no limits, which is said.
kernels::GpuLimits gpu_limits(const std::string& state_dir, const kernels::GpuInfo& gpu,
                              const MeasurePlan& plan, const std::function<void(double)>& progress);
// Of what a --device stands for, "auto" too; none of "reference".
MachineLimits device_limits(const std::string& state_dir, const std::string& device, int threads,
                            const std::function<void(double)>& progress);
// The GPU that a --device stands for; none: it is another device, or there is no such GPU.
std::optional<kernels::GpuInfo> find_gpu(const std::string& device);

// Drops what is kept there, so that the next call measures anew.
void forget_limits(const std::string& state_dir);

}  // namespace headrace::cli

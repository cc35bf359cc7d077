#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/device.h"
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

// Drops what is kept there, so that the next call measures anew.
void forget_limits(const std::string& state_dir);

}  // namespace headrace::cli

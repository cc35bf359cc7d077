#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/device.h"

namespace headrace::kernels {

struct ReadRate {
  uint64_t working_set;     // bytes, shared by all threads
  double bytes_per_second;  // p90 of the sweeps, several streams a thread
};

// Roofs of this machine with `threads` threads on `path`, measured now.
struct CpuLimits {
  std::vector<ReadRate> read;  // ascending working set
  double int8_ops_per_second;  // multiply-add = 2
  double f32_flops_per_second;
};

// Takes about `seconds` in all; working sets from 1 MiB up to `bytes_max`, each measured twice, the
// better one counts; rates never grow with the working set. `progress` gets 0..1.
CpuLimits measure_cpu_limits(CpuPath path, int threads, double seconds, uint64_t bytes_max,
                             const std::function<void(double)>& progress);

// Read limit in bytes/s at a working set: measured points, interpolated over its logarithm, held
// flat beyond both ends.
double read_limit(const CpuLimits& limits, uint64_t working_set);

}  // namespace headrace::kernels

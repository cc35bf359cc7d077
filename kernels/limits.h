#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/device.h"

namespace headrace::kernels {

struct ReadRate {
  uint64_t working_set;     // bytes, shared by all threads
  double bytes_per_second;  // p90 of the sweeps, several streams a thread
  bool operator==(const ReadRate&) const = default;
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

// The read rate of one working set alone, measured for about `seconds`: what a benchmark takes before
// and behind its own runs.
ReadRate measure_read(CpuPath path, int threads, uint64_t bytes, double seconds);

// Roofs of a GPU. Zero = not measured.
struct GpuLimits {
  std::vector<ReadRate> read;             // ascending working set; past the L1, so first of the L2
  double bf16_flops_per_second = 0;       // mma.sync with f32 sums, from registers
  double to_device_bytes_per_second = 0;  // from pinned memory of the host
  double to_host_bytes_per_second = 0;    // into it
  double launch_seconds = 0;              // one kernel behind another, each started by itself
  double graph_seconds = 0;               // the same within a graph
  bool operator==(const GpuLimits&) const = default;
};

// Measured now; about `seconds` in all on a GPU, in which working sets from 1 MiB to `bytes_max`
// are tried as far as the time reaches: the first one always is. Set after set, `bytes_max` of the
// GPU's memory are taken and given back. `progress` gets 0..1. Throws DeviceError.
// Of kernels/cuda, as make_cuda_device is (cuda_device.h).
GpuLimits measure_gpu_limits(int ordinal, double seconds, uint64_t bytes_max,
                             const std::function<void(double)>& progress);

// Read limit in bytes/s at a working set: measured points, interpolated over its logarithm, held
// flat beyond both ends.
double read_limit(const CpuLimits& limits, uint64_t working_set);

}  // namespace headrace::kernels

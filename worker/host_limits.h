#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernels/device.h"
#include "kernels/limits.h"
#include "protocol/files.h"
#include "protocol/result.h"
#include "protocol/time_model.h"

namespace headrace::worker {

// How long a process waits for another one on this machine to finish measuring.
inline constexpr Duration kHostLimitsWait = 60s;
inline constexpr size_t kHostLimitsBytesMax = size_t{1} << 20;
inline constexpr size_t kHostLimitsEntriesMax = 64;  // the oldest go

// What the limits belong to: others with an equal key reuse them.
struct HostLimitsKey {
  std::string host;  // host_identity()
  kernels::CpuPath path{};
  int threads = 0;
};

using MeasureLimits = std::function<kernels::CpuLimits()>;

// The machine's limits from `state_dir`/host-limits.json, or measured now and kept there. Measuring
// happens once a key, under a lock of the folder: two processes that measured at once would each
// see half a machine. A file that cannot be understood is measured anew and replaced.
Result<MachineLimits> host_limits(Files& files, const std::string& state_dir,
                                  const HostLimitsKey& key, const MeasureLimits& measure);

// The same for a GPU of this machine, in the same file.
struct GpuLimitsKey {
  std::string host;
  std::string gpu;  // GpuInfo::id: two of a name need not be equally fast
};

using MeasureGpu = std::function<kernels::GpuLimits()>;

// What `measure` throws is passed on, and nothing is kept then.
Result<kernels::GpuLimits> gpu_limits(Files& files, const std::string& state_dir,
                                      const GpuLimitsKey& key, const MeasureGpu& measure);
// Never measures.
std::optional<kernels::GpuLimits> kept_gpu_limits(Files& files, const std::string& state_dir,
                                                  const GpuLimitsKey& key);
// As the model of time takes them.
MachineLimits machine_limits(const kernels::GpuLimits& limits);

// A name for this machine and its processor; changes when either does.
std::string host_identity();

}  // namespace headrace::worker

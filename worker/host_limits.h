#pragma once

#include <functional>
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

// A name for this machine and its processor; changes when either does.
std::string host_identity();

}  // namespace headrace::worker

#pragma once

#include <optional>
#include <string>

#include "kernels/device.h"
#include "protocol/client.h"
#include "protocol/time_model.h"

namespace headrace::cli {

// A CPU device as workers name it: "cpu avx512vnni, 2 threads".
struct NamedDevice {
  kernels::CpuPath path{};
  int threads = 0;
  bool operator==(const NamedDevice&) const = default;
};
std::optional<NamedDevice> parse_device_name(const std::string& text);

// The limits of the machine that decodes, where they can be known here: the cluster is on this
// machine and its first decoding worker says what it computes with. Else empty.
MachineLimits limits_of(const client::ClusterStatus& status, const Endpoint& at,
                        const std::string& state_dir);

}  // namespace headrace::cli

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/device.h"
#include "protocol/client.h"
#include "protocol/time_model.h"

namespace headrace::cli {

// Connects and makes sure that a coordinator answers there, within some seconds: other ports (of
// the mesh, of metrics) and other programs take a connection too, and then say nothing of use.
Result<std::unique_ptr<client::Client>> connect_client(const Endpoint& at);

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

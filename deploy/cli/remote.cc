#include "deploy/cli/remote.h"

#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"

namespace headrace::cli {

Result<std::unique_ptr<client::Client>> connect_client(const Endpoint& at) {
  auto client = client::Client::connect(at);
  if (!client) return client;
  const auto info = (*client)->hello("headrace");
  if (info) return client;
  return error(info.error().code,
               "no answer of a coordinator at " + to_string(at) +
                   ": is that its port for clients (--listen, by default 7400)? those of mesh and "
                   "metrics are others");
}

std::optional<NamedDevice> parse_device_name(const std::string& text) {
  constexpr std::string_view kCpu = "cpu ";
  const size_t comma = text.find(", ");
  if (!text.starts_with(kCpu) || comma == text.npos) return std::nullopt;
  const auto path = kernels::parse_cpu_path(text.substr(kCpu.size(), comma - kCpu.size()));
  const std::string_view rest = std::string_view(text).substr(comma + 2);
  const auto threads = parse_whole(rest.substr(0, rest.find(' ')), 1, 1 << 16);
  if (!path || !threads) return std::nullopt;
  return NamedDevice{*path, static_cast<int>(*threads)};
}

MachineLimits limits_of(const client::ClusterStatus& status, const Endpoint& at,
                        const std::string& state_dir) {
  if (!loopback(at.host)) return {};
  for (const auto& worker : status.workers) {
    const auto device = parse_device_name(worker.device);
    if (worker.role == "prefill" || !device) continue;
    return machine_limits(state_dir, device->path, device->threads, kQuickMeasure, {});
  }
  return {};
}

}  // namespace headrace::cli

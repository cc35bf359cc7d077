#include "worker/host_limits.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace headrace::worker {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kReadPointsMax = 16;

std::optional<double> positive(const json& j) {
  if (!j.is_number()) return std::nullopt;
  const double v = j.get<double>();
  return std::isfinite(v) && v >= 0 ? std::optional(v) : std::nullopt;
}

bool matches(const json& entry, const HostLimitsKey& key) {
  return entry.is_object() && entry.value("host", json()) == key.host &&
         entry.value("path", json()) == kernels::name(key.path) &&
         entry.value("threads", json()) == key.threads;
}

// nullopt: not what to_json writes.
std::optional<MachineLimits> from_json(const json& entry) {
  MachineLimits out;
  const json read = entry.value("read", json());
  const auto int8 = positive(entry.value("int8_ops_per_second", json()));
  const auto f32 = positive(entry.value("f32_flops_per_second", json()));
  if (!read.is_array() || read.size() > kReadPointsMax || !int8 || !f32) return std::nullopt;
  for (const json& point : read) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_unsigned())
      return std::nullopt;
    const auto rate = positive(point[1]);
    const auto working_set = point[0].get<uint64_t>();
    if (!rate || (!out.read.empty() && working_set <= out.read.back().working_set))
      return std::nullopt;
    out.read.push_back({working_set, *rate});
  }
  out.int8_ops_per_second = *int8;
  out.f32_flops_per_second = *f32;
  return out;
}

json to_json(const HostLimitsKey& key, const MachineLimits& limits) {
  json read = json::array();
  for (const ReadPoint& p : limits.read) read.push_back({p.working_set, p.bytes_per_second});
  return {{"host", key.host},
          {"path", kernels::name(key.path)},
          {"threads", key.threads},
          {"read", read},
          {"int8_ops_per_second", limits.int8_ops_per_second},
          {"f32_flops_per_second", limits.f32_flops_per_second}};
}

MachineLimits from_measurement(const kernels::CpuLimits& measured) {
  MachineLimits out;
  for (const kernels::ReadRate& r : measured.read)
    if (out.read.size() < kReadPointsMax) out.read.push_back({r.working_set, r.bytes_per_second});
  out.int8_ops_per_second = measured.int8_ops_per_second;
  out.f32_flops_per_second = measured.f32_flops_per_second;
  return out;
}

// The entries kept so far; none where the file is missing or strange.
json read_entries(Files& files, const std::string& path) {
  const Result<Bytes> bytes = files.read(path, kHostLimitsBytesMax);
  if (!bytes) return json::array();
  const auto* begin = reinterpret_cast<const char*>(bytes->data());
  const json all = json::parse(begin, begin + bytes->size(), nullptr, false);
  if (!all.is_object() || all.value("version", json()) != kVersion) return json::array();
  const json entries = all.value("entries", json());
  return entries.is_array() ? entries : json::array();
}

std::optional<MachineLimits> find(const json& entries, const HostLimitsKey& key) {
  for (const json& entry : entries)
    if (matches(entry, key)) return from_json(entry);
  return std::nullopt;
}

std::string first_line(const char* path, const std::string& prefix) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(prefix)) return line.substr(prefix.size());
  return {};
}

}  // namespace

Result<MachineLimits> host_limits(Files& files, const std::string& state_dir,
                                  const HostLimitsKey& key, const MeasureLimits& measure) {
  const std::string path = state_dir + "/host-limits.json";
  if (const auto known = find(read_entries(files, path), key)) return *known;
  if (Status s = files.make_directory(state_dir); !s.ok()) return s;
  const auto lock = files.lock(state_dir + "/host-limits.lock", kHostLimitsWait);
  if (!lock) return lock.error();
  const json before = read_entries(files, path);
  if (const auto known = find(before, key)) return *known;  // measured while we waited
  const MachineLimits limits = from_measurement(measure());
  json entries = json::array({to_json(key, limits)});
  for (const json& entry : before)
    if (!matches(entry, key) && entries.size() < kHostLimitsEntriesMax) entries.push_back(entry);
  const std::string text = json{{"version", kVersion}, {"entries", entries}}.dump(1) + "\n";
  if (Status s = files.write(path, std::as_bytes(std::span(text))); !s.ok()) return s;
  return limits;
}

std::string host_identity() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const std::string machine = first_line("/etc/machine-id", "");
  return (machine.empty() ? std::string(name) : machine) + " " +
         first_line("/proc/cpuinfo", "model name\t: ");
}

}  // namespace headrace::worker

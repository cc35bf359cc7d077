#include "worker/host_limits.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
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

// What an entry belongs to, as it lies in the file.
json to_json(const HostLimitsKey& key) {
  return {{"host", key.host}, {"path", kernels::name(key.path)}, {"threads", key.threads}};
}
json to_json(const GpuLimitsKey& key) { return {{"host", key.host}, {"gpu", key.gpu}}; }

bool matches(const json& entry, const json& key) {
  if (!entry.is_object()) return false;
  for (const auto& [name, value] : key.items())
    if (entry.value(name, json()) != value) return false;
  return true;
}

// nullopt: not what read_json writes. Works for the points of both kinds of limits.
template <class Point>
std::optional<std::vector<Point>> read_points(const json& entry) {
  const json read = entry.value("read", json());
  if (!read.is_array() || read.size() > kReadPointsMax) return std::nullopt;
  std::vector<Point> out;
  for (const json& point : read) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_unsigned())
      return std::nullopt;
    const auto rate = positive(point[1]);
    const auto working_set = point[0].get<uint64_t>();
    if (!rate || (!out.empty() && working_set <= out.back().working_set)) return std::nullopt;
    out.push_back({working_set, *rate});
  }
  return out;
}

template <class Points>
json read_json(const Points& points) {
  json read = json::array();
  for (const auto& p : points)
    if (read.size() < kReadPointsMax) read.push_back({p.working_set, p.bytes_per_second});
  return read;
}

// Each number of `limits` and its name in the file.
template <class Limits, class F>
void each_number(Limits& limits, const F& f) {
  if constexpr (std::is_same_v<std::remove_const_t<Limits>, MachineLimits>) {
    f("int8_ops_per_second", limits.int8_ops_per_second);
    f("f32_flops_per_second", limits.f32_flops_per_second);
  } else {
    f("bf16_flops_per_second", limits.bf16_flops_per_second);
    f("to_device_bytes_per_second", limits.to_device_bytes_per_second);
    f("to_host_bytes_per_second", limits.to_host_bytes_per_second);
    f("launch_seconds", limits.launch_seconds);
    f("graph_seconds", limits.graph_seconds);
  }
}

// nullopt: not what to_entry writes.
template <class Limits>
std::optional<Limits> from_entry(const json& entry) {
  Limits out;
  const auto read = read_points<typename decltype(out.read)::value_type>(entry);
  bool right = read.has_value();
  each_number(out, [&](const char* name, double& number) {
    const auto value = positive(entry.value(name, json()));
    right = right && value;
    number = value.value_or(0);
  });
  if (!right) return std::nullopt;
  out.read = *read;
  return out;
}

template <class Limits>
json to_entry(const json& key, const Limits& limits) {
  json entry = key;
  entry["read"] = read_json(limits.read);
  each_number(limits, [&](const char* name, double number) { entry[name] = number; });
  return entry;
}

MachineLimits from_measurement(const kernels::CpuLimits& measured) {
  MachineLimits out;
  for (const kernels::ReadRate& r : measured.read)
    if (out.read.size() < kReadPointsMax) out.read.push_back({r.working_set, r.bytes_per_second});
  out.int8_ops_per_second = measured.int8_ops_per_second;
  out.f32_flops_per_second = measured.f32_flops_per_second;
  return out;
}

std::string file_of(const std::string& state_dir) { return state_dir + "/host-limits.json"; }

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

template <class Limits>
std::optional<Limits> find(const json& entries, const json& key) {
  for (const json& entry : entries)
    if (matches(entry, key)) return from_entry<Limits>(entry);
  return std::nullopt;
}

template <class Limits>
Result<Limits> kept_or_measured(Files& files, const std::string& state_dir, const json& key,
                                const std::function<Limits()>& measure) {
  const std::string path = file_of(state_dir);
  if (const auto known = find<Limits>(read_entries(files, path), key)) return *known;
  if (Status s = files.make_directory(state_dir); !s.ok()) return s;
  const auto lock = files.lock(state_dir + "/host-limits.lock", kHostLimitsWait);
  if (!lock) return lock.error();
  const json before = read_entries(files, path);
  if (const auto known = find<Limits>(before, key)) return *known;  // measured while we waited
  const Limits limits = measure();
  json entries = json::array({to_entry(key, limits)});
  for (const json& entry : before)
    if (!matches(entry, key) && entries.size() < kHostLimitsEntriesMax) entries.push_back(entry);
  const std::string text = json{{"version", kVersion}, {"entries", entries}}.dump(1) + "\n";
  if (Status s = files.write(path, std::as_bytes(std::span(text))); !s.ok()) return s;
  return limits;
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
  return kept_or_measured<MachineLimits>(files, state_dir, to_json(key),
                                         [&] { return from_measurement(measure()); });
}

Result<kernels::GpuLimits> gpu_limits(Files& files, const std::string& state_dir,
                                      const GpuLimitsKey& key, const MeasureGpu& measure) {
  return kept_or_measured<kernels::GpuLimits>(files, state_dir, to_json(key), measure);
}

std::optional<kernels::GpuLimits> kept_gpu_limits(Files& files, const std::string& state_dir,
                                                  const GpuLimitsKey& key) {
  return find<kernels::GpuLimits>(read_entries(files, file_of(state_dir)), to_json(key));
}

MachineLimits machine_limits(const kernels::GpuLimits& limits) {
  MachineLimits out;
  for (const kernels::ReadRate& r : limits.read)
    if (out.read.size() < kReadPointsMax) out.read.push_back({r.working_set, r.bytes_per_second});
  out.bf16_flops_per_second = limits.bf16_flops_per_second;
  return out;
}

std::string host_identity() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const std::string machine = first_line("/etc/machine-id", "");
  return (machine.empty() ? std::string(name) : machine) + " " +
         first_line("/proc/cpuinfo", "model name\t: ");
}

}  // namespace headrace::worker

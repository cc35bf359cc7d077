#include "protocol/metrics.h"

#include <dirent.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <mutex>
#include <sstream>

#include "protocol/check.h"
#include "protocol/error.h"

namespace headrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the UTF-8 character that begins here; 0 if none does.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : length;
}

std::string clean(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    out += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

prometheus::Labels clean(const MetricLabels& labels) {
  prometheus::Labels out;
  for (const auto& [key, value] : labels) out[key] = clean(value);
  return out;
}

}  // namespace

const char* name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "unknown";
}

void CounterMetric::add(double more) const {
  if (target_ && more > 0) static_cast<prometheus::Counter*>(target_)->Increment(more);
}

void CounterMetric::raise_to(double total) const { add(total - value()); }

double CounterMetric::value() const {
  return target_ ? static_cast<prometheus::Counter*>(target_)->Value() : 0;
}

void GaugeMetric::set(double value) const {
  if (target_) static_cast<prometheus::Gauge*>(target_)->Set(value);
}

double GaugeMetric::value() const {
  return target_ ? static_cast<prometheus::Gauge*>(target_)->Value() : 0;
}

void HistogramMetric::observe(double value) const {
  if (target_ && std::isfinite(value)) {
    static_cast<prometheus::Histogram*>(target_)->Observe(value);
  }
}

struct Metrics::Body {
  prometheus::Registry registry;
  prometheus::Labels common;
  std::mutex mutex;
  std::vector<std::function<void()>> refreshes;

  template <class T, class Builder>
  prometheus::Family<T>& family(Builder builder, const MetricSpec& spec) {
    return builder.Name(std::string(spec.name))
        .Help(std::string(spec.help))
        .Labels(common)
        .Register(registry);
  }
};

Metrics::Metrics(MetricLabels common) : body_(std::make_unique<Body>()) {
  body_->common = clean(common);
}
Metrics::~Metrics() = default;

CounterMetric Metrics::counter(const MetricSpec& spec, const MetricLabels& labels) {
  CHECK(spec.type == MetricType::kCounter);
  CounterMetric handle;
  handle.target_ =
      &body_->family<prometheus::Counter>(prometheus::BuildCounter(), spec).Add(clean(labels));
  return handle;
}

GaugeMetric Metrics::gauge(const MetricSpec& spec, const MetricLabels& labels) {
  CHECK(spec.type == MetricType::kGauge);
  GaugeMetric handle;
  handle.target_ =
      &body_->family<prometheus::Gauge>(prometheus::BuildGauge(), spec).Add(clean(labels));
  return handle;
}

HistogramMetric Metrics::histogram(const MetricSpec& spec, const MetricLabels& labels) {
  CHECK(spec.type == MetricType::kHistogram && !spec.buckets.empty());
  const prometheus::Histogram::BucketBoundaries bounds(spec.buckets.begin(), spec.buckets.end());
  HistogramMetric handle;
  handle.target_ = &body_->family<prometheus::Histogram>(prometheus::BuildHistogram(), spec)
                        .Add(clean(labels), bounds);
  return handle;
}

LabelValues error_values() {
  LabelValues values;
  for (auto code = static_cast<uint16_t>(Errc::kInvalid);
       code <= static_cast<uint16_t>(Errc::kUnknown); ++code) {
    values.push_back(name(static_cast<Errc>(code)));
  }
  return values;
}

template <class Handle>
MetricSet<Handle> Metrics::set(Handle (Metrics::*make)(const MetricSpec&, const MetricLabels&),
                               const MetricSpec& spec, const char* key, const LabelValues& values,
                               const MetricLabels& more) {
  MetricSet<Handle> out;
  for (const std::string_view value : values) {
    MetricLabels labels = more;
    labels.emplace_back(key, value);
    out.handles_.emplace_back(value, (this->*make)(spec, labels));
  }
  return out;
}

MetricSet<CounterMetric> Metrics::counters(const MetricSpec& spec, const char* key,
                                           const LabelValues& values, const MetricLabels& more) {
  return set(&Metrics::counter, spec, key, values, more);
}
MetricSet<GaugeMetric> Metrics::gauges(const MetricSpec& spec, const char* key,
                                       const LabelValues& values, const MetricLabels& more) {
  return set(&Metrics::gauge, spec, key, values, more);
}
MetricSet<HistogramMetric> Metrics::histograms(const MetricSpec& spec, const char* key,
                                               const LabelValues& values,
                                               const MetricLabels& more) {
  return set(&Metrics::histogram, spec, key, values, more);
}

void Metrics::before_text(std::function<void()> refresh) {
  const std::lock_guard lock(body_->mutex);
  body_->refreshes.push_back(std::move(refresh));
}

std::string Metrics::text() const {
  {
    const std::lock_guard lock(body_->mutex);
    for (const auto& refresh : body_->refreshes) refresh();
  }
  std::ostringstream out;
  out.imbue(std::locale::classic());
  prometheus::TextSerializer().Serialize(out, body_->registry.Collect());
  return std::move(out).str();
}

namespace {

constexpr std::array<MetricSpec, 7> kProcess{{
    {"process_cpu_seconds_total", MetricType::kCounter, "seconds",
     "User and system time of this process"},
    {"process_start_time_seconds", MetricType::kGauge, "seconds",
     "When this process began, in Unix time"},
    {"process_resident_memory_bytes", MetricType::kGauge, "bytes", "Memory in RAM"},
    {"process_virtual_memory_bytes", MetricType::kGauge, "bytes", "Address space in use"},
    {"process_open_fds", MetricType::kGauge, "descriptors", "Open file descriptors"},
    {"process_max_fds", MetricType::kGauge, "descriptors", "Limit of open file descriptors"},
    {"process_threads", MetricType::kGauge, "threads", "Threads of this process"},
}};

constexpr std::array<MetricSpec, 1> kBuild{{
    {"headrace_build_info", MetricType::kGauge, "info", "What runs here; always 1"},
}};

double open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return 0;
  int count = -3;  // ".", ".." and the one that reads
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

// Field numbers as in proc(5), from 1.
struct ProcessStat {
  double cpu_seconds = 0;  // 14 + 15
  double threads = 0;      // 20
  double start_ticks = 0;  // 22, since boot
  double virtual_bytes = 0;
  double resident_pages = 0;
};

ProcessStat read_stat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  ProcessStat stat;
  const size_t name_end = line.rfind(')');
  if (name_end == line.npos) return stat;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  double ticks = 0;
  for (int field = 4; field <= 24; ++field) {
    double value = 0;
    if (!(fields >> value)) break;
    if (field == 14 || field == 15) ticks += value;
    if (field == 20) stat.threads = value;
    if (field == 22) stat.start_ticks = value;
    if (field == 23) stat.virtual_bytes = value;
    if (field == 24) stat.resident_pages = value;
  }
  stat.cpu_seconds = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return stat;
}

double boot_time() {
  std::ifstream file("/proc/stat");
  std::string word;
  double seconds = 0;
  while (file >> word) {
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

}  // namespace

std::span<const MetricSpec> process_metric_specs() { return kProcess; }
std::span<const MetricSpec> build_metric_specs() { return kBuild; }

void add_process_metrics(Metrics& metrics) {
  const CounterMetric cpu = metrics.counter(kProcess[0]);
  std::vector<GaugeMetric> gauges;
  for (size_t i = 1; i < kProcess.size(); ++i) gauges.push_back(metrics.gauge(kProcess[i]));
  metrics.before_text([cpu, gauges, boot = boot_time()] {
    const ProcessStat stat = read_stat();
    cpu.raise_to(stat.cpu_seconds);
    gauges[0].set(boot + stat.start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
    gauges[1].set(stat.resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    gauges[2].set(stat.virtual_bytes);
    gauges[3].set(open_descriptors());
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    gauges[4].set(static_cast<double>(limit.rlim_cur));
    gauges[5].set(stat.threads);
  });
}

void add_build_info(Metrics& metrics, MetricLabels labels) {
  labels.emplace_back("version", HEADRACE_VERSION);
  metrics.gauge(kBuild[0], labels).set(1);
}

}  // namespace headrace

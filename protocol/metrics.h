#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Numbers for a Prometheus. The only door to its client library, of which the registry and the text
// serializer are used; the HTTP part is ours (status_server.h).

namespace headrace {

enum class MetricType { kCounter, kGauge, kHistogram };
const char* name(MetricType type);  // "counter", ...

// One metric as operators know it. Names, units and helps live as long as the program.
struct MetricSpec {
  std::string_view name;  // with prefix and, on counters, "_total"
  MetricType type{};
  std::string_view unit;              // "seconds", "bytes", "ratio", "requests", ...
  std::string_view help;              // one sentence without a full stop
  std::span<const double> buckets{};  // of a histogram: upper bounds, ascending
};

// Names from a fixed set or the operator's own; never a client's words.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Handles: cheap to copy, valid as long as their Metrics, usable on any thread. Without a target
// (default-made) they drop what they are told.
class CounterMetric {
 public:
  void add(double more = 1) const;  // less than 0: ignored
  // For what is counted elsewhere: moves up to `total`, never down.
  void raise_to(double total) const;
  double value() const;

 private:
  friend class Metrics;
  void* target_ = nullptr;
};
class GaugeMetric {
 public:
  void set(double value) const;
  double value() const;

 private:
  friend class Metrics;
  void* target_ = nullptr;
};
class HistogramMetric {
 public:
  void observe(double value) const;

 private:
  friend class Metrics;
  void* target_ = nullptr;
};

// Series of one metric that differ in one label, whose values are a fixed set.
template <class Handle>
class MetricSet {
 public:
  // That of `value`. What is not in the set is told to "other" if that is, else dropped.
  const Handle& operator[](std::string_view value) const {
    static const Handle nobody;
    const Handle* other = &nobody;
    for (const auto& [known, handle] : handles_) {
      if (known == value) return handle;
      if (known == "other") other = &handle;
    }
    return *other;
  }

 private:
  friend class Metrics;
  std::vector<std::pair<std::string_view, Handle>> handles_;
};
// Values of a label; they live as long as the program.
using LabelValues = std::vector<std::string_view>;
LabelValues error_values();  // the names of all errors

// A registry. All is thread-safe; making a metric locks, telling it a value does not (histograms
// hold a lock of their own for some instructions).
class Metrics {
 public:
  // `common`: labels of every series.
  explicit Metrics(MetricLabels common = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The same spec and labels give the same series. Label values that are no UTF-8 get U+FFFD.
  CounterMetric counter(const MetricSpec& spec, const MetricLabels& labels = {});
  GaugeMetric gauge(const MetricSpec& spec, const MetricLabels& labels = {});
  HistogramMetric histogram(const MetricSpec& spec, const MetricLabels& labels = {});

  // The same for each of the values that label `key` has.
  MetricSet<CounterMetric> counters(const MetricSpec& spec, const char* key,
                                    const LabelValues& values, const MetricLabels& more = {});
  MetricSet<GaugeMetric> gauges(const MetricSpec& spec, const char* key, const LabelValues& values,
                                const MetricLabels& more = {});
  MetricSet<HistogramMetric> histograms(const MetricSpec& spec, const char* key,
                                        const LabelValues& values, const MetricLabels& more = {});

  // Called at the beginning of each text(), on its thread: for what is read only when asked for.
  void before_text(std::function<void()> refresh);

  // All series in Prometheus' text format, version 0.0.4.
  std::string text() const;

 private:
  struct Body;
  template <class Handle>
  MetricSet<Handle> set(Handle (Metrics::*make)(const MetricSpec&, const MetricLabels&),
                        const MetricSpec& spec, const char* key, const LabelValues& values,
                        const MetricLabels& more);
  std::unique_ptr<Body> body_;
};

// process_*: the standard names, read from /proc when asked for.
void add_process_metrics(Metrics& metrics);
std::span<const MetricSpec> process_metric_specs();

// headrace_build_info{version, simd...} = 1.
void add_build_info(Metrics& metrics, MetricLabels labels);
std::span<const MetricSpec> build_metric_specs();

}  // namespace headrace

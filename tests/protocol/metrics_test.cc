#include "protocol/metrics.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "protocol/error.h"

namespace headrace {
namespace {

constexpr std::array<double, 2> kBuckets{0.5, 2};
constexpr MetricSpec kCount{"t_total", MetricType::kCounter, "things", "Counts"};
constexpr MetricSpec kLevel{"t_level", MetricType::kGauge, "things", "Stands"};
constexpr MetricSpec kTook{"t_seconds", MetricType::kHistogram, "seconds", "Takes", kBuckets};

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("a set has all its series at once; what is not in it goes to other, or nowhere") {
  Metrics metrics;
  const auto open = metrics.counters(kCount, "kind", {"a", "other", "b"}, {{"side", "x"}});
  open["a"].add(2);
  open["b"].add(3);
  open["c"].add(4);
  const auto closed = metrics.gauges(kLevel, "kind", {"a", "b"});
  closed["b"].set(5);
  closed["c"].set(6);
  MetricSet<CounterMetric>()["a"].add();
  const std::string text = metrics.text();
  CHECK(has(text, "t_total{kind=\"a\",side=\"x\"} 2"));
  CHECK(has(text, "t_total{kind=\"b\",side=\"x\"} 3"));
  CHECK(has(text, "t_total{kind=\"other\",side=\"x\"} 4"));
  CHECK(has(text, "t_level{kind=\"a\"} 0"));
  CHECK(has(text, "t_level{kind=\"b\"} 5"));
  CHECK(text.find("\"c\"") == text.npos);
}

TEST_CASE("errors as values of a label") {
  const LabelValues values = error_values();
  CHECK(values.front() == name(Errc::kInvalid));
  CHECK(values.back() == name(Errc::kUnknown));
  CHECK(std::set(values.begin(), values.end()).size() == values.size());
}

TEST_CASE("counters, gauges and histograms appear as text") {
  Metrics metrics(MetricLabels{{"role", "decode"}});
  metrics.counter(kCount, {{"kind", "a"}}).add(2);
  metrics.counter(kCount, {{"kind", "a"}}).add();  // the same series
  metrics.counter(kCount, {{"kind", "b"}}).add(-1);
  metrics.gauge(kLevel).set(-1.5);
  const HistogramMetric took = metrics.histogram(kTook);
  for (const double v : {0.25, 1.0, 3.0, std::numeric_limits<double>::quiet_NaN()}) {
    took.observe(v);
  }
  const std::string text = metrics.text();
  CHECK(has(text, "# HELP t_total Counts"));
  CHECK(has(text, "# TYPE t_total counter"));
  CHECK(has(text, "t_total{role=\"decode\",kind=\"a\"} 3"));
  CHECK(has(text, "t_total{role=\"decode\",kind=\"b\"} 0"));
  CHECK(has(text, "t_level{role=\"decode\"} -1.5"));
  CHECK(has(text, "t_seconds_count{role=\"decode\"} 3"));
  CHECK(has(text, "t_seconds_sum{role=\"decode\"} 4.25"));
  CHECK(has(text, "t_seconds_bucket{role=\"decode\",le=\"0.5\"} 1"));
  CHECK(has(text, "t_seconds_bucket{role=\"decode\",le=\"+Inf\"} 3"));
}

TEST_CASE("a total that is counted elsewhere never falls") {
  Metrics metrics;
  const CounterMetric count = metrics.counter(kCount);
  count.raise_to(5);
  count.raise_to(3);
  CHECK(count.value() == 5);
  count.raise_to(7);
  CHECK(count.value() == 7);
}

TEST_CASE("handles without a registry drop what they are told") {
  CounterMetric{}.add(1);
  GaugeMetric{}.set(1);
  HistogramMetric{}.observe(1);
  CHECK(CounterMetric{}.value() == 0);
  CHECK(GaugeMetric{}.value() == 0);
}

TEST_CASE("label values are escaped and repaired") {
  Metrics metrics;
  metrics.gauge(kLevel, {{"model", "a\"b\\c\nd"}}).set(1);
  metrics.gauge(kLevel, {{"model", "x\xFF\xC3y\xE2\x82\xAC\xED\xA0\x80"}}).set(2);
  const std::string text = metrics.text();
  CHECK(has(text, "t_level{model=\"a\\\"b\\\\c\\nd\"} 1"));
  CHECK(has(text,
            "t_level{model=\"x\xEF\xBF\xBD\xEF\xBF\xBDy\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBD"
            "\xEF\xBF\xBD\"} 2"));
}

TEST_CASE("what is read only when asked for is read at each text") {
  Metrics metrics;
  const GaugeMetric level = metrics.gauge(kLevel);
  int calls = 0;
  metrics.before_text([&] { level.set(++calls); });
  CHECK(has(metrics.text(), "t_level 1"));
  CHECK(has(metrics.text(), "t_level 2"));
}

TEST_CASE("threads may count while others read") {
  Metrics metrics;
  const CounterMetric count = metrics.counter(kCount);
  const HistogramMetric took = metrics.histogram(kTook);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        count.add();
        took.observe(1);
      }
    });
  }
  for (int i = 0; i < 20; ++i) CHECK(!metrics.text().empty());
  for (auto& t : threads) t.join();
  CHECK(has(metrics.text(), "t_total 4000"));
  CHECK(has(metrics.text(), "t_seconds_count 4000"));
}

TEST_CASE("the process and the build are described") {
  Metrics metrics;
  add_process_metrics(metrics);
  add_build_info(metrics, {{"simd", "avx2"}});
  const std::string text = metrics.text();
  for (const MetricSpec& spec : process_metric_specs()) {
    CAPTURE(spec.name);
    const size_t at = text.find("\n" + std::string(spec.name) + " ");
    REQUIRE(at != std::string::npos);
    if (spec.name != "process_cpu_seconds_total") {
      CHECK(std::stod(text.substr(at + spec.name.size() + 2)) > 0);
    }
  }
  CHECK(text.find("headrace_build_info{simd=\"avx2\",version=\"") != std::string::npos);
}

}  // namespace
}  // namespace headrace

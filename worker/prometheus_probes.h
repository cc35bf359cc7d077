#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "protocol/metrics.h"
#include "worker/probes.h"

namespace headrace::worker {

// Every metric of a worker, for `metrics list` and the tests of dashboards.
std::span<const MetricSpec> metric_specs();

// A worker's numbers in a registry, which must live as long. All series exist from the beginning,
// so that a rate over the first event is right. Told on the worker's strand, read on any thread.
class PrometheusProbes final : public Probes {
 public:
  explicit PrometheusProbes(Metrics& metrics);

  // What is fixed once the model is loaded.
  void model(const ModelCard& card, uint32_t blocks, double load_seconds);
  void loading(double share);  // of the model, 0..1

  void step(const StepReport& report) override;
  void lanes() override;
  void handoff(const HandoffReport& report) override;
  void gauges(const WorkerGauges& gauges) override;
  void prefix(uint32_t asked, uint32_t hit) override;
  void preempted() override;
  void failed(Errc why) override;
  void refused(Errc why) override;

 private:
  struct Op {
    CounterMetric weights, kv, activations, flops, seconds;
  };
  struct Kind {
    CounterMetric steps, seconds;
    HistogramMetric duration;
  };
  struct Phase {
    GaugeMetric bandwidth, compute;
    MetricSet<GaugeMetric> walls;
    void set(const Saturation& s) const;
  };
  struct Side {
    CounterMetric bytes, ended;
    MetricSet<HistogramMetric> seconds;
    MetricSet<CounterMetric> failures;
  };
  struct Way {
    Side sent, received;
    GaugeMetric share, limit;  // of the links over which KV comes
    void set(const LinkUse& link) const;
  };

  void add_steps();
  void add_machine();
  void add_sequences();
  void add_handoffs();
  void add_outcomes();
  const Op& op(std::string_view name);
  Phase phase(const char* name);
  Side side(const char* transport, const char* name);
  Way way(const char* transport);

  Metrics& metrics_;
  std::map<std::string, Op, std::less<>> ops_;
  std::array<Kind, 3> kinds_;  // by StepKind
  CounterMetric gap_seconds_, prefill_tokens_, decode_tokens_;

  Phase prefill_, decode_;
  GaugeMetric working_set_, read_limit_, int8_peak_, f32_peak_, bf16_peak_, weight_bytes_,
      kv_token_bytes_;
  CounterMetric limits_raised_;

  GaugeMetric running_, waiting_, draining_;
  MetricSet<GaugeMetric> blocks_;
  GaugeMetric kv_usage_, slack_tokens_, kv_short_;
  CounterMetric prefix_asked_, prefix_hit_, preempted_;

  Way tcp_;
  std::optional<Way> nccl_;  // where there are lanes
  GaugeMetric inflight_;
  MetricSet<CounterMetric> failed_, refused_;
  GaugeMetric loaded_, load_seconds_, model_bytes_;
};

}  // namespace headrace::worker

#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/probes.h"
#include "coordinator/scrape_targets.h"
#include "protocol/metrics.h"
#include "protocol/status_pages.h"

namespace headrace::coordinator {

// Every metric of a coordinator, for `metrics list` and the tests of dashboards.
std::span<const MetricSpec> metric_specs();

// A coordinator's numbers in a registry, and its readiness on a board; both must live as long.
// Told on the Dispatcher's strand, read on any thread.
class PrometheusProbes final : public Probes {
 public:
  using Clock = std::function<Instant()>;
  PrometheusProbes(Metrics& metrics, StatusBoard& board,
                   Clock now = std::chrono::steady_clock::now);

  void ended(const Ended& ended, bool dispatched) override;
  void first_token(double seconds) override;
  void tokens(uint32_t tokens, double seconds) override;
  void stage(std::string_view stage, double seconds) override;
  void client_gone(std::string_view phase) override;
  void attempt_failed(Errc why) override;
  void worker_lost(WorkerId worker, std::string_view how) override;
  void routed(std::string_view reason, uint32_t cached) override;
  void status(const ClusterStatus& status) override;

  // Of all workers, see scrape_targets.h.
  std::string targets() const;

 private:
  using Counters = MetricSet<CounterMetric>;
  void add_requests();
  void add_cluster();
  void count_totals(const Totals& totals);

  Metrics& metrics_;
  StatusBoard& board_;
  const Clock now_;

  Counters outcomes_, rejections_, gone_, prompt_tokens_;
  CounterMetric generated_;
  HistogramMetric ttft_, itl_, per_token_, duration_, prompt_size_, answer_size_;
  MetricSet<HistogramMetric> stages_;
  GaugeMetric running_, waiting_, undelivered_, ready_;

  std::map<std::pair<Role, std::string>, GaugeMetric> workers_;
  CounterMetric attempts_, remote_prefills_, expected_hits_;
  CounterMetric resumed_, stop_matched_, told_again_, closing_lost_, poisoned_;
  Counters lost_, failed_, routes_, dropped_;

  mutable std::mutex mutex_;
  ScrapeTargets targets_;
};

}  // namespace headrace::coordinator

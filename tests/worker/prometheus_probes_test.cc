#include "worker/prometheus_probes.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

namespace headrace::worker {
namespace {

// Value of one series; -1 if it is not there.
double value(const Metrics& metrics, const std::string& series) {
  const std::string text = "\n" + metrics.text();
  const size_t at = text.find("\n" + series + " ");
  return at == text.npos ? -1 : std::stod(text.substr(at + series.size() + 2));
}

TEST_CASE("names follow Prometheus' rules, once each") {
  std::set<std::string_view> names;
  for (const MetricSpec& spec : metric_specs()) {
    CAPTURE(spec.name);
    CHECK(spec.name.starts_with("headrace_"));
    CHECK((spec.type == MetricType::kCounter) == spec.name.ends_with("_total"));
    CHECK_FALSE(spec.help.empty());
    CHECK_FALSE(spec.help.ends_with('.'));
    CHECK_FALSE(spec.unit.empty());
    CHECK(names.insert(spec.name).second);
  }
}

TEST_CASE("every metric of the list has a series from the beginning") {
  Metrics metrics;
  PrometheusProbes probes(metrics);
  probes.model({}, 10, 1.5);
  const std::string text = metrics.text();
  for (const MetricSpec& spec : metric_specs()) {
    CAPTURE(spec.name);
    CHECK(text.find("# TYPE " + std::string(spec.name) + " " + name(spec.type)) != text.npos);
  }
}

TEST_CASE("a step adds its bytes, operations and seconds") {
  Metrics metrics;
  PrometheusProbes probes(metrics);
  std::vector<kernels::OpAccount> accounts(2);
  accounts[0] = {"matmul", {1000, 0, 20, 4000}, 0.25, 3};
  accounts[1] = {"attention", {0, 500, 7, 600}, 0.125, 1};
  for (int i = 0; i < 2; ++i) {
    probes.step({StepKind::kDecode, 0.5, 0.125, 3, 0, 1500, accounts});
  }
  probes.step({StepKind::kPrefill, 2, 0, 0, 64, 1500, {}});
  CHECK(value(metrics, "headrace_dram_bytes_total{kind=\"weights\",op=\"matmul\"}") == 2000);
  CHECK(value(metrics, "headrace_dram_bytes_total{kind=\"activations\",op=\"matmul\"}") == 40);
  CHECK(value(metrics, "headrace_dram_bytes_total{kind=\"kv\",op=\"attention\"}") == 1000);
  CHECK(value(metrics, "headrace_dram_bytes_total{kind=\"kv\",op=\"embed\"}") == 0);
  CHECK(value(metrics, "headrace_flops_total{op=\"matmul\"}") == 8000);
  CHECK(value(metrics, "headrace_op_seconds_total{op=\"attention\"}") == 0.25);
  CHECK(value(metrics, "headrace_steps_total{kind=\"decode\"}") == 2);
  CHECK(value(metrics, "headrace_steps_total{kind=\"mixed\"}") == 0);
  CHECK(value(metrics, "headrace_step_seconds_total{kind=\"decode\"}") == 1);
  CHECK(value(metrics, "headrace_step_duration_seconds_count{kind=\"prefill\"}") == 1);
  CHECK(value(metrics, "headrace_step_gap_seconds_total") == 0.25);
  CHECK(value(metrics, "headrace_step_tokens_total{phase=\"prefill\"}") == 64);
  CHECK(value(metrics, "headrace_step_tokens_total{phase=\"decode\"}") == 6);
}

TEST_CASE("gauges follow what they are told, and go back") {
  Metrics metrics;
  PrometheusProbes probes(metrics);
  WorkerGauges g;
  g.blocks = {20, 4, 8, 4, 2, 1, 1};
  g.slack_tokens = 17;
  g.running = 3;
  g.waiting = 2;
  g.transfers = 1;
  g.kv_short = g.draining = true;
  g.decode = {0.75, 0.25, Wall::kDram};
  g.working_set = 1000;
  g.read_limit = 5e9;
  g.int8_peak = 1e12;
  g.bf16_peak = 6e14;
  g.limits_raised = 2;
  CHECK(value(metrics, "headrace_wall{phase=\"decode\",wall=\"none\"}") == 1);
  probes.gauges(g);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"free\"}") == 4);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"active\"}") == 8);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"cached\"}") == 4);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"incoming\"}") == 2);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"pinned\"}") == 1);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"quarantined\"}") == 1);
  CHECK(value(metrics, "headrace_kv_usage_ratio") == 0.6);
  CHECK(value(metrics, "headrace_kv_slack_tokens") == 17);
  CHECK(value(metrics, "headrace_kv_short") == 1);
  CHECK(value(metrics, "headrace_draining") == 1);
  CHECK(value(metrics, "headrace_sequences_running") == 3);
  CHECK(value(metrics, "headrace_sequences_waiting") == 2);
  CHECK(value(metrics, "headrace_kv_handoff_inflight") == 1);
  CHECK(value(metrics, "headrace_bandwidth_saturation_ratio{phase=\"decode\"}") == 0.75);
  CHECK(value(metrics, "headrace_compute_saturation_ratio{phase=\"decode\"}") == 0.25);
  CHECK(value(metrics, "headrace_wall{phase=\"decode\",wall=\"dram\"}") == 1);
  CHECK(value(metrics, "headrace_wall{phase=\"decode\",wall=\"cache\"}") == 0);
  CHECK(value(metrics, "headrace_wall{phase=\"decode\",wall=\"none\"}") == 0);
  CHECK(value(metrics, "headrace_wall{phase=\"prefill\",wall=\"dram\"}") == 0);
  CHECK(value(metrics, "headrace_wall{phase=\"prefill\",wall=\"none\"}") == 1);
  CHECK(value(metrics, "headrace_read_limit_bytes_per_second") == 5e9);
  CHECK(value(metrics, "headrace_peak_flops_per_second{dtype=\"int8\"}") == 1e12);
  CHECK(value(metrics, "headrace_peak_flops_per_second{dtype=\"bf16\"}") == 6e14);
  CHECK(value(metrics, "headrace_limit_raised_total") == 2);
  probes.gauges({});
  CHECK(value(metrics, "headrace_sequences_running") == 0);
  CHECK(value(metrics, "headrace_kv_blocks{state=\"active\"}") == 0);
  CHECK(value(metrics, "headrace_wall{phase=\"decode\",wall=\"dram\"}") == 0);
  CHECK(value(metrics, "headrace_wall{phase=\"decode\",wall=\"none\"}") == 1);
  CHECK(value(metrics, "headrace_limit_raised_total") == 2);
}

TEST_CASE("hand-offs are counted by side, failures by reason") {
  Metrics metrics;
  PrometheusProbes probes(metrics);
  probes.handoff({true, 5000, 0.25, 0.5, 1, {}});
  probes.handoff({false, 100, 0, 0, 2, error(Errc::kDeadline, "late")});
  probes.handoff({false, 0, 0, 0, 2, error(Errc::kNumeric, "odd")});
  WorkerGauges gauges;
  gauges.links[0] = {0.75, 3e9};
  gauges.links[1] = {0.5, 2e11};
  probes.gauges(gauges);
  CHECK(metrics.text().find("transport=\"nccl\"") == std::string::npos);
  probes.lanes();
  probes.gauges(gauges);
  const auto link = [&](const std::string& what, const std::string& transport) {
    return value(metrics, "headrace_kv_link_" + what + "{transport=\"" + transport + "\"}");
  };
  CHECK(link("saturation_ratio", "tcp") == 0.75);
  CHECK(link("saturation_ratio", "nccl") == 0.5);
  CHECK(link("limit_bytes_per_second", "tcp") == 3e9);
  CHECK(link("limit_bytes_per_second", "nccl") == 2e11);
  probes.handoff({true, 700, 0, 0, 0, {}, LaneKind::kNccl});
  CHECK(value(metrics, "headrace_kv_handoff_bytes_total{side=\"send\",transport=\"nccl\"}") == 700);
  const std::string send = "{side=\"send\",transport=\"tcp\"}";
  CHECK(value(metrics, "headrace_kv_handoff_bytes_total" + send) == 5000);
  CHECK(value(metrics, "headrace_kv_handoffs_total" + send) == 1);
  CHECK(value(metrics,
              "headrace_kv_handoff_seconds_sum{phase=\"wire\",side=\"send\","
              "transport=\"tcp\"}") == 0.5);
  CHECK(value(metrics, "headrace_kv_handoff_bytes_total{side=\"receive\",transport=\"tcp\"}") ==
        100);
  for (const std::string why : {"timeout", "internal"}) {
    CHECK(value(metrics, "headrace_kv_handoff_failures_total{reason=\"" + why +
                             "\",side=\"receive\",transport=\"tcp\"}") == 1);
  }
}

TEST_CASE("prefix hits, preemptions, failures and refusals are counted") {
  Metrics metrics;
  PrometheusProbes probes(metrics);
  probes.prefix(100, 64);
  probes.prefix(10, 0);
  probes.preempted();
  probes.failed(Errc::kNumeric);
  probes.refused(Errc::kOverloaded);
  probes.refused(static_cast<Errc>(999));
  CHECK(value(metrics, "headrace_prefix_cache_queries_total") == 110);
  CHECK(value(metrics, "headrace_prefix_cache_hits_total") == 64);
  CHECK(value(metrics, "headrace_preemptions_total") == 1);
  const std::string numeric(name(Errc::kNumeric)), overloaded(name(Errc::kOverloaded)),
      unknown(name(Errc::kUnknown));
  CHECK(value(metrics, "headrace_attempts_failed_total{reason=\"" + numeric + "\"}") == 1);
  CHECK(value(metrics, "headrace_refusals_total{reason=\"" + overloaded + "\"}") == 1);
  CHECK(value(metrics, "headrace_refusals_total{reason=\"" + unknown + "\"}") == 1);
}

}  // namespace
}  // namespace headrace::worker

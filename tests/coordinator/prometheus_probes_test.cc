#include "coordinator/prometheus_probes.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace headrace::coordinator {
namespace {

// Value of one series; -1 if it is not there.
double value(const Metrics& metrics, const std::string& series) {
  const std::string text = "\n" + metrics.text();
  const size_t at = text.find("\n" + series + " ");
  return at == text.npos ? -1 : std::stod(text.substr(at + series.size() + 2));
}

struct Rig {
  Metrics metrics;
  StatusBoard board;
  PrometheusProbes probes{metrics, board};
  double get(const std::string& series) const { return value(metrics, "headrace_" + series); }
};

Ended ended(Finish finish, Errc code = Errc::kOk) {
  Ended e;
  e.finish = finish;
  if (code != Errc::kOk) e.status = error(code, "why");
  e.usage = {100, 11, 64};
  e.timing = {0.5, 1, 3};
  return e;
}

TEST_CASE("names follow Prometheus' rules, once each, and all are there from the beginning") {
  const Rig rig;
  const std::string text = rig.metrics.text();
  std::set<std::string_view> names;
  for (const MetricSpec& spec : metric_specs()) {
    CAPTURE(spec.name);
    CHECK(spec.name.starts_with("headrace_"));
    CHECK((spec.type == MetricType::kCounter) == spec.name.ends_with("_total"));
    CHECK_FALSE(spec.help.empty());
    CHECK_FALSE(spec.help.ends_with('.'));
    CHECK_FALSE(spec.unit.empty());
    CHECK(names.insert(spec.name).second);
    CHECK(text.find("# TYPE " + std::string(spec.name) + " " + name(spec.type)) != text.npos);
  }
}

TEST_CASE("a request counts for one outcome") {
  Rig rig;
  rig.probes.ended(ended(Finish::kStop), true);
  rig.probes.ended(ended(Finish::kLength), true);
  rig.probes.ended(ended(Finish::kCancelled, Errc::kCancelled), true);
  rig.probes.ended(ended(Finish::kCancelled, Errc::kDeadline), true);
  rig.probes.ended(ended(Finish::kError, Errc::kInvalid), false);
  rig.probes.ended(ended(Finish::kError, Errc::kContextExceeded), false);
  rig.probes.ended(ended(Finish::kError, Errc::kOverloaded), false);
  rig.probes.ended(ended(Finish::kError, Errc::kUnavailable), false);
  rig.probes.ended(ended(Finish::kError, Errc::kUnavailable), true);
  rig.probes.ended(ended(Finish::kError, Errc::kDeadline), true);
  rig.probes.ended(ended(Finish::kError, Errc::kInternal), true);
  const auto outcome = [&](const std::string& how) {
    return rig.get("requests_total{outcome=\"" + how + "\"}");
  };
  CHECK(outcome("stop") == 1);
  CHECK(outcome("length") == 1);
  CHECK(outcome("cancelled") == 1);
  CHECK(outcome("deadline") == 2);
  CHECK(outcome("invalid") == 2);
  CHECK(outcome("rejected") == 2);
  CHECK(outcome("error") == 2);
  const std::string overloaded(name(Errc::kOverloaded)), internal(name(Errc::kInternal));
  CHECK(rig.get("admission_rejections_total{reason=\"" + overloaded + "\"}") == 1);
  CHECK(rig.get("admission_rejections_total{reason=\"" + internal + "\"}") == 0);
}

TEST_CASE("times and sizes are those of requests that a worker had") {
  Rig rig;
  rig.probes.ended(ended(Finish::kStop), true);
  rig.probes.ended(ended(Finish::kError, Errc::kInvalid), false);
  rig.probes.first_token(0.5);
  rig.probes.tokens(4, 0.2);
  rig.probes.stage("queue", 0.25);
  rig.probes.stage("unheard of", 1);
  CHECK(rig.get("request_duration_seconds_count") == 1);
  CHECK(rig.get("request_duration_seconds_sum") == 3);
  CHECK(rig.get("request_time_per_output_token_seconds_sum") == 0.2);
  CHECK(rig.get("request_prompt_tokens_sum") == 100);
  CHECK(rig.get("request_generation_tokens_sum") == 11);
  CHECK(rig.get("prompt_tokens_total{source=\"cached\"}") == 64);
  CHECK(rig.get("prompt_tokens_total{source=\"computed\"}") == 36);
  CHECK(rig.get("time_to_first_token_seconds_sum") == 0.5);
  CHECK(rig.get("inter_token_latency_seconds_count") == 4);
  CHECK(rig.get("inter_token_latency_seconds_bucket{le=\"0.05\"}") == 4);
  CHECK(rig.get("inter_token_latency_seconds_bucket{le=\"0.04\"}") == 0);
  CHECK(rig.get("request_stage_seconds_sum{stage=\"queue\"}") == 0.25);
}

TEST_CASE("routes, clients gone, failed attempts and lost workers are counted") {
  Rig rig;
  rig.probes.routed("prefix", 96);
  rig.probes.routed("by dice", 0);
  rig.probes.client_gone("prefill");
  rig.probes.attempt_failed(Errc::kDisconnected);
  rig.probes.worker_lost(WorkerId{1}, "silent");
  const std::string disconnected(name(Errc::kDisconnected));
  CHECK(rig.get("routing_decisions_total{reason=\"prefix\"}") == 1);
  CHECK(rig.get("routing_decisions_total{reason=\"other\"}") == 1);
  CHECK(rig.get("routed_prefix_tokens_total") == 96);
  CHECK(rig.get("client_disconnects_total{phase=\"prefill\"}") == 1);
  CHECK(rig.get("request_attempts_failed_total{reason=\"" + disconnected + "\"}") == 1);
  CHECK(rig.get("workers_lost_total{reason=\"silent\"}") == 1);
  CHECK(rig.get("workers_lost_total{reason=\"drained\"}") == 0);
}

TEST_CASE("the status moves gauges both ways and totals only up") {
  Rig rig;
  ClusterStatus status;
  status.ready = true;
  status.running = 3;
  status.waiting = 2;
  status.draining = 1;
  status.totals.tokens = 500;
  status.totals.stale = 4;
  status.totals.prefix_gaps = 9;
  status.totals.resumed = 3;
  status.totals.stop_matched = 5;
  status.totals.told_again = 6;
  status.totals.closing_lost = 7;
  status.totals.poisoned = 8;
  WorkerStatus worker;
  worker.role = Role::kDecode;
  worker.state = "ready";
  status.workers = {worker, worker};
  rig.probes.status(status);
  CHECK(rig.get("requests_running") == 3);
  CHECK(rig.get("requests_waiting") == 2);
  CHECK(rig.get("requests_undelivered") == 1);
  CHECK(rig.get("ready") == 1);
  CHECK(rig.get("generation_tokens_total") == 500);
  CHECK(rig.get("dropped_messages_total{reason=\"stale\"}") == 4);
  CHECK(rig.get("dropped_messages_total{reason=\"prefix_gap\"}") == 9);
  CHECK(rig.get("requests_resumed_total") == 3);
  CHECK(rig.get("requests_stop_matched_total") == 5);
  CHECK(rig.get("messages_repeated_total") == 6);
  CHECK(rig.get("attempts_unanswered_total") == 7);
  CHECK(rig.get("requests_poisoned_total") == 8);
  CHECK(rig.get("workers{role=\"decode\",state=\"ready\"}") == 2);
  rig.probes.status({});
  CHECK(rig.get("requests_running") == 0);
  CHECK(rig.get("requests_waiting") == 0);
  CHECK(rig.get("ready") == 0);
  CHECK(rig.get("workers{role=\"decode\",state=\"ready\"}") == 0);
  CHECK(rig.get("generation_tokens_total") == 500);
}

TEST_CASE("the board says when the cluster is ready, and why not") {
  Rig rig;
  CHECK_FALSE(rig.board.get().ready);
  ClusterStatus status;
  status.not_ready = "no worker";
  rig.probes.status(status);
  CHECK_FALSE(rig.board.get().ready);
  CHECK(rig.board.get().why == "no worker");
  status.ready = true;
  rig.probes.status(status);
  CHECK(rig.board.get().ready);
  status.leaving = true;
  rig.probes.status(status);
  CHECK_FALSE(rig.board.get().ready);
  CHECK(rig.board.get().draining);
  CHECK(rig.board.get().why == "draining");
}

TEST_CASE(
    "a Prometheus still finds a worker that was lost, for a while, and none that was drained") {
  Instant now{};
  Metrics metrics;
  StatusBoard board;
  PrometheusProbes probes(metrics, board, [&] { return now; });
  CHECK(probes.targets() == "[]");
  ClusterStatus status;
  status.metrics = {"127.0.0.1", 8081};
  for (const uint16_t i : {1, 2, 3}) {
    WorkerStatus worker;
    worker.id = WorkerId{i};
    worker.metrics = {"127.0.0.1", i};
    status.workers.push_back(worker);
  }
  const auto count = [&] { return nlohmann::json::parse(probes.targets()).size(); };
  probes.status(status);
  CHECK(count() == 4);
  probes.worker_lost(WorkerId{1}, "silent");
  probes.worker_lost(WorkerId{2}, "drained");
  status.workers.erase(status.workers.begin(), status.workers.begin() + 2);
  probes.status(status);
  CHECK(count() == 3);
  now += ScrapeTargets::kLostFor + 1s;
  probes.status(status);
  CHECK(count() == 2);
}

}  // namespace
}  // namespace headrace::coordinator

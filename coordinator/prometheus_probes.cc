#include "coordinator/prometheus_probes.h"

#include <algorithm>
#include <utility>

namespace headrace::coordinator {
namespace {

using enum MetricType;

constexpr double kTtftBuckets[] = {.002, .005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5,
                                   .75,  1,    1.5, 2,   3,   5,   7.5,  10, 20,  40, 80, 160};
constexpr double kItlBuckets[] = {.001, .002, .003, .004, .006, .008, .01, .015,
                                  .02,  .025, .03,  .04,  .05,  .075, .1,  .15,
                                  .2,   .3,   .5,   1,    2.5,  5,    10};
constexpr double kDurationBuckets[] = {.01, .025, .05, .1, .25, .5,  1,   2.5, 5,
                                       10,  20,   30,  60, 120, 300, 600, 1200};
constexpr double kStageBuckets[] = {.0001,  .0002,  .0004,  .0008,   .0016,   .0032,  .0064,
                                    .0128,  .0256,  .0512,  .1024,   .2048,   .4096,  .8192,
                                    1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288};
constexpr double kTokenBuckets[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                    500, 1000, 2000, 5000, 10000, 20000, 50000, 131072};

enum Index {
  kRequests,
  kRejections,
  kGone,
  kRunning,
  kWaiting,
  kUndelivered,
  kTtft,
  kItl,
  kPerToken,
  kRequestDuration,
  kStage,
  kPromptTokens,
  kGenerated,
  kPromptSize,
  kAnswerSize,
  kWorkers,
  kWorkersLost,
  kAttempts,
  kAttemptsFailed,
  kRemotePrefills,
  kRoutes,
  kExpectedHits,
  kDropped,
  kResumed,
  kStopMatched,
  kToldAgain,
  kClosingLost,
  kPoisoned,
  kReady,
  kCount,
};

constexpr MetricSpec kSpecs[] = {
    {"headrace_requests_total", kCounter, "requests",
     "Requests that ended, by outcome (stop, length, cancelled, deadline, rejected, invalid, "
     "error)"},
    {"headrace_admission_rejections_total", kCounter, "requests",
     "Requests that no worker ever had, by reason"},
    {"headrace_client_disconnects_total", kCounter, "clients",
     "Clients gone before their request ended, by its phase (queue, prefill, decode)"},
    {"headrace_requests_running", kGauge, "requests", "Requests that a worker has"},
    {"headrace_requests_waiting", kGauge, "requests", "Requests in the queue"},
    {"headrace_requests_undelivered", kGauge, "requests",
     "Requests that are over and whose client has not taken all"},
    {"headrace_time_to_first_token_seconds", kHistogram, "seconds",
     "From admission to the first token", kTtftBuckets},
    {"headrace_inter_token_latency_seconds", kHistogram, "seconds",
     "Between two tokens of one answer", kItlBuckets},
    {"headrace_request_time_per_output_token_seconds", kHistogram, "seconds",
     "Mean time of a request's tokens after its first", kItlBuckets},
    {"headrace_request_duration_seconds", kHistogram, "seconds", "From admission to the end",
     kDurationBuckets},
    {"headrace_request_stage_seconds", kHistogram, "seconds",
     "Time of a request in each stage (tokenize, queue, prefill, decode)", kStageBuckets},
    {"headrace_prompt_tokens_total", kCounter, "tokens",
     "Prompt tokens of requests that ended, by source (computed, cached)"},
    {"headrace_generation_tokens_total", kCounter, "tokens", "Tokens generated"},
    {"headrace_request_prompt_tokens", kHistogram, "tokens", "Prompt tokens of a request",
     kTokenBuckets},
    {"headrace_request_generation_tokens", kHistogram, "tokens", "Generated tokens of a request",
     kTokenBuckets},
    {"headrace_workers", kGauge, "workers", "Workers that have joined, by role and state"},
    {"headrace_workers_lost_total", kCounter, "workers",
     "Workers that left, by reason: disconnected (died, or its link broke), silent, rule (broke "
     "one), drained (as it was asked to)"},
    {"headrace_attempts_total", kCounter, "attempts", "Attempts at requests, one a dispatch"},
    {"headrace_request_attempts_failed_total", kCounter, "attempts",
     "Attempts that failed, by reason; the request goes on elsewhere if it can"},
    {"headrace_remote_prefills_total", kCounter, "requests",
     "Requests whose KV came from a prefill worker"},
    {"headrace_routing_decisions_total", kCounter, "decisions",
     "Routes by what decided them (prefix, time, only_choice)"},
    {"headrace_routed_prefix_tokens_total", kCounter, "tokens",
     "Prompt tokens that routes expected in a prefix cache"},
    {"headrace_dropped_messages_total", kCounter, "messages",
     "Messages of workers that were dropped: stale, repeat, gap, conflict, prefix_gap"},
    {"headrace_requests_resumed_total", kCounter, "requests", "Answers that a client came back to"},
    {"headrace_requests_stop_matched_total", kCounter, "requests",
     "Answers that a stop text ended"},
    {"headrace_messages_repeated_total", kCounter, "messages",
     "Messages sent again because a worker seems to have missed them"},
    {"headrace_attempts_unanswered_total", kCounter, "attempts",
     "Cancelled attempts given up before all workers said that they hold nothing"},
    {"headrace_requests_poisoned_total", kCounter, "requests",
     "Requests taken for the cause of workers' deaths"},
    {"headrace_ready", kGauge, "flag", "1 while a request can be answered"},
};
static_assert(std::size(kSpecs) == kCount);

std::string_view outcome(const Ended& ended, bool dispatched) {
  switch (ended.finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kCancelled:
      return ended.status.code == Errc::kDeadline ? "deadline" : "cancelled";
    case Finish::kNone:
    case Finish::kError:
      break;
  }
  switch (ended.status.code) {
    case Errc::kInvalid:
    case Errc::kNotFound:
    case Errc::kContextExceeded:
      return "invalid";
    case Errc::kDeadline:
      return "deadline";
    case Errc::kOverloaded:
    case Errc::kUnavailable:
      return dispatched ? "error" : "rejected";
    default:
      return "error";
  }
}

}  // namespace

std::span<const MetricSpec> metric_specs() { return kSpecs; }

PrometheusProbes::PrometheusProbes(Metrics& metrics, StatusBoard& board, Clock now)
    : metrics_(metrics), board_(board), now_(std::move(now)) {
  add_requests();
  add_cluster();
}

void PrometheusProbes::add_requests() {
  outcomes_ = metrics_.counters(
      kSpecs[kRequests], "outcome",
      {"stop", "length", "cancelled", "deadline", "rejected", "invalid", "error"});
  rejections_ = metrics_.counters(kSpecs[kRejections], "reason", error_values());
  gone_ = metrics_.counters(kSpecs[kGone], "phase", {"queue", "prefill", "decode"});
  prompt_tokens_ = metrics_.counters(kSpecs[kPromptTokens], "source", {"computed", "cached"});
  generated_ = metrics_.counter(kSpecs[kGenerated]);
  ttft_ = metrics_.histogram(kSpecs[kTtft]);
  itl_ = metrics_.histogram(kSpecs[kItl]);
  per_token_ = metrics_.histogram(kSpecs[kPerToken]);
  duration_ = metrics_.histogram(kSpecs[kRequestDuration]);
  prompt_size_ = metrics_.histogram(kSpecs[kPromptSize]);
  answer_size_ = metrics_.histogram(kSpecs[kAnswerSize]);
  stages_ =
      metrics_.histograms(kSpecs[kStage], "stage", {"tokenize", "queue", "prefill", "decode"});
  running_ = metrics_.gauge(kSpecs[kRunning]);
  waiting_ = metrics_.gauge(kSpecs[kWaiting]);
  undelivered_ = metrics_.gauge(kSpecs[kUndelivered]);
  ready_ = metrics_.gauge(kSpecs[kReady]);
}

void PrometheusProbes::add_cluster() {
  for (const Role role : {Role::kPrefill, Role::kDecode, Role::kBoth}) {
    for (const char* state : {"ready", "draining", "stalled", "suspect"}) {
      workers_[{role, state}] =
          metrics_.gauge(kSpecs[kWorkers], {{"role", name(role)}, {"state", state}});
    }
  }
  lost_ = metrics_.counters(kSpecs[kWorkersLost], "reason",
                            {"disconnected", "silent", "rule", "drained"});
  attempts_ = metrics_.counter(kSpecs[kAttempts]);
  failed_ = metrics_.counters(kSpecs[kAttemptsFailed], "reason", error_values());
  remote_prefills_ = metrics_.counter(kSpecs[kRemotePrefills]);
  routes_ =
      metrics_.counters(kSpecs[kRoutes], "reason", {"prefix", "time", "only_choice", "other"});
  expected_hits_ = metrics_.counter(kSpecs[kExpectedHits]);
  dropped_ = metrics_.counters(kSpecs[kDropped], "reason",
                               {"stale", "repeat", "gap", "conflict", "prefix_gap"});
  resumed_ = metrics_.counter(kSpecs[kResumed]);
  stop_matched_ = metrics_.counter(kSpecs[kStopMatched]);
  told_again_ = metrics_.counter(kSpecs[kToldAgain]);
  closing_lost_ = metrics_.counter(kSpecs[kClosingLost]);
  poisoned_ = metrics_.counter(kSpecs[kPoisoned]);
}

void PrometheusProbes::ended(const Ended& ended, bool dispatched) {
  const std::string_view how = outcome(ended, dispatched);
  outcomes_[how].add();
  if (!dispatched && ended.finish == Finish::kError) rejections_[name(ended.status.code)].add();
  if (!dispatched) return;
  const Usage& usage = ended.usage;
  const uint32_t cached = std::min(usage.cached_tokens, usage.prompt_tokens);
  prompt_tokens_["cached"].add(cached);
  prompt_tokens_["computed"].add(usage.prompt_tokens - cached);
  prompt_size_.observe(usage.prompt_tokens);
  answer_size_.observe(usage.completion_tokens);
  duration_.observe(ended.timing.total);
  if (usage.completion_tokens > 1 && ended.timing.first_token > 0) {
    per_token_.observe((ended.timing.total - ended.timing.first_token) /
                       (usage.completion_tokens - 1));
  }
}

void PrometheusProbes::first_token(double seconds) { ttft_.observe(seconds); }

void PrometheusProbes::tokens(uint32_t tokens, double seconds) {
  // A run came at once: each of its tokens took its share.
  for (uint32_t i = 0; i < tokens; ++i) itl_.observe(seconds / tokens);
}

void PrometheusProbes::stage(std::string_view stage, double seconds) {
  stages_[stage].observe(seconds);
}

void PrometheusProbes::client_gone(std::string_view phase) { gone_[phase].add(); }
void PrometheusProbes::attempt_failed(Errc why) { failed_[name(why)].add(); }

void PrometheusProbes::worker_lost(WorkerId worker, std::string_view how) {
  lost_[how].add();
  if (how == "drained") return;
  const std::lock_guard lock(mutex_);
  targets_.lost(worker, now_());
}

void PrometheusProbes::routed(std::string_view reason, uint32_t cached) {
  routes_[reason].add();
  expected_hits_.add(cached);
}

void PrometheusProbes::count_totals(const Totals& totals) {
  const auto raise = [](const CounterMetric& counter, uint64_t total) {
    counter.raise_to(static_cast<double>(total));
  };
  raise(generated_, totals.tokens);
  raise(attempts_, totals.attempts);
  raise(remote_prefills_, totals.remote_prefills);
  raise(dropped_["stale"], totals.stale);
  raise(dropped_["repeat"], totals.repeats);
  raise(dropped_["gap"], totals.gaps);
  raise(dropped_["conflict"], totals.conflicts);
  raise(dropped_["prefix_gap"], totals.prefix_gaps);
  raise(resumed_, totals.resumed);
  raise(stop_matched_, totals.stop_matched);
  raise(told_again_, totals.told_again);
  raise(closing_lost_, totals.closing_lost);
  raise(poisoned_, totals.poisoned);
}

void PrometheusProbes::status(const ClusterStatus& status) {
  running_.set(status.running);
  waiting_.set(status.waiting);
  undelivered_.set(status.draining);
  const bool ready = status.ready && !status.leaving;
  ready_.set(ready ? 1 : 0);
  std::map<std::pair<Role, std::string>, int> counts;
  for (const WorkerStatus& w : status.workers) ++counts[{w.role, w.state}];
  for (const auto& [key, gauge] : workers_) {
    const auto found = counts.find(key);
    gauge.set(found == counts.end() ? 0 : found->second);
  }
  count_totals(status.totals);
  board_.set({ready, status.leaving ? "draining" : status.not_ready, status.leaving, 1});
  const std::lock_guard lock(mutex_);
  targets_.status(status, now_());
}

std::string PrometheusProbes::targets() const {
  const std::lock_guard lock(mutex_);
  return targets_.json();
}

}  // namespace headrace::coordinator

#include "worker/prometheus_probes.h"

#include "kernels/ops.h"

namespace headrace::worker {
namespace {

using enum MetricType;

constexpr double kStepBuckets[] = {.0002, .0005, .001, .002, .003, .005, .0075, .01, .015, .02,
                                   .03,   .05,   .1,   .2,   .5,   1,    2,     5,   10};
constexpr double kHandoffBuckets[] = {.0005, .001, .002, .005, .01, .02, .05, .1,
                                      .2,    .5,   1,    2,    5,   10,  30};

enum Index {
  kDramBytes,
  kFlops,
  kOpSeconds,
  kSteps,
  kStepSeconds,
  kStepDuration,
  kGapSeconds,
  kStepTokens,
  kBandwidth,
  kCompute,
  kWall,
  kWorkingSet,
  kReadLimit,
  kPeak,
  kLimitRaised,
  kWeightBytes,
  kKvTokenBytes,
  kRunning,
  kWaiting,
  kDraining,
  kBlocks,
  kUsage,
  kSlack,
  kShort,
  kPrefixAsked,
  kPrefixHit,
  kPreempted,
  kHandoffBytes,
  kHandoffSeconds,
  kLinkShare,
  kLinkLimit,
  kHandoffs,
  kHandoffFailures,
  kInflight,
  kFailed,
  kRefused,
  kLoaded,
  kLoadSeconds,
  kModelBytes,
  kCacheConfig,
  kCount,
};

constexpr MetricSpec kSpecs[] = {
    {"headrace_dram_bytes_total", kCounter, "bytes",
     "Bytes that operations had to move if nothing is cached, by operation and kind (weights, kv, "
     "activations)"},
    {"headrace_flops_total", kCounter, "operations",
     "Arithmetic operations by operation; a multiply-add is two"},
    {"headrace_op_seconds_total", kCounter, "seconds",
     "Time spent in each operation; on a GPU, where they overlap, a step's time shared out by the "
     "bytes that each had to move"},
    {"headrace_steps_total", kCounter, "steps", "Engine steps by kind (prefill, decode, mixed)"},
    {"headrace_step_seconds_total", kCounter, "seconds", "Time with a step in execution, by kind"},
    {"headrace_step_duration_seconds", kHistogram, "seconds", "How long single steps took",
     kStepBuckets},
    {"headrace_step_gap_seconds_total", kCounter, "seconds",
     "Time between two steps while there was work"},
    {"headrace_step_tokens_total", kCounter, "tokens",
     "Rows of steps by phase: prompt tokens computed (prefill), tokens generated (decode)"},
    {"headrace_bandwidth_saturation_ratio", kGauge, "ratio",
     "Bytes that had to move over time over the read limit at the working set, over the last "
     "seconds with steps of this phase"},
    {"headrace_compute_saturation_ratio", kGauge, "ratio",
     "Operations over time over the peak, over the last seconds with steps of this phase"},
    {"headrace_wall", kGauge, "flag",
     "1 for the wall that is nearest in this phase (dram, cache, compute, link, kv_capacity, "
     "queue, gaps; none: nothing ran in the last seconds, or nothing is near)"},
    {"headrace_working_set_bytes", kGauge, "bytes", "Weights and KV that the last step went over"},
    {"headrace_read_limit_bytes_per_second", kGauge, "bytes per second",
     "Measured read bandwidth of this machine, or of its GPU, at the working set"},
    {"headrace_peak_flops_per_second", kGauge, "operations per second",
     "Measured peak by type of arithmetic: int8 and f32 of a processor, bf16 of a GPU"},
    {"headrace_limit_raised_total", kCounter, "limits",
     "Measured limits that steps passed and that were raised to what was seen"},
    {"headrace_weight_bytes_per_step", kGauge, "bytes", "Weights that one decode step reads"},
    {"headrace_kv_bytes_per_token", kGauge, "bytes", "K and V of one token, all layers"},
    {"headrace_sequences_running", kGauge, "sequences", "Sequences in the batch"},
    {"headrace_sequences_waiting", kGauge, "sequences", "Sequences admitted and not yet begun"},
    {"headrace_draining", kGauge, "flag", "1 while this worker takes no new work"},
    {"headrace_kv_blocks", kGauge, "blocks",
     "KV blocks by state (free, active, cached, incoming, pinned, quarantined)"},
    {"headrace_kv_usage_ratio", kGauge, "ratio",
     "Blocks that nobody else can have now (active, incoming, pinned, quarantined) of all"},
    {"headrace_kv_slack_tokens", kGauge, "tokens",
     "Places for tokens in partly filled blocks of running sequences"},
    {"headrace_kv_short", kGauge, "flag", "1 while someone waits because KV blocks are missing"},
    {"headrace_prefix_cache_queries_total", kCounter, "tokens",
     "Prompt tokens looked up in the prefix cache"},
    {"headrace_prefix_cache_hits_total", kCounter, "tokens",
     "Prompt tokens found in the prefix cache"},
    {"headrace_preemptions_total", kCounter, "sequences",
     "Sequences whose blocks were taken away, to be computed again"},
    {"headrace_kv_handoff_bytes_total", kCounter, "bytes",
     "KV moved between workers, by transport and side"},
    {"headrace_kv_handoff_seconds", kHistogram, "seconds",
     "Hand-offs by phase: wait (until the first byte), wire, total", kHandoffBuckets},
    {"headrace_kv_link_saturation_ratio", kGauge, "ratio",
     "KV that came over the time that it was under way over the link's limit, by transport, over "
     "the last seconds in which KV came"},
    {"headrace_kv_link_limit_bytes_per_second", kGauge, "bytes per second",
     "Highest rate at which KV has come from a peer, by transport; of several, weighed by what "
     "they sent of late; 0: not measured yet"},
    {"headrace_kv_handoffs_total", kCounter, "transfers", "Hand-offs that succeeded, by side"},
    {"headrace_kv_handoff_failures_total", kCounter, "transfers",
     "Hand-offs that failed, by side and reason"},
    {"headrace_kv_handoff_inflight", kGauge, "transfers", "Hand-offs under way, both sides"},
    {"headrace_attempts_failed_total", kCounter, "attempts",
     "Attempts at requests that failed here, by reason"},
    {"headrace_refusals_total", kCounter, "attempts", "Work that was refused here, by reason"},
    {"headrace_model_loaded_ratio", kGauge, "ratio", "Share of the model that is loaded"},
    {"headrace_model_load_seconds", kGauge, "seconds", "How long loading the model took"},
    {"headrace_model_size_bytes", kGauge, "bytes", "Weights that a step reads; 0 until loaded"},
    {"headrace_cache_config_info", kGauge, "info", "KV cache of this worker; always 1"},
};
static_assert(std::size(kSpecs) == kCount);

constexpr Wall kWalls[] = {Wall::kDram,       Wall::kCache, Wall::kCompute, Wall::kLink,
                           Wall::kKvCapacity, Wall::kQueue, Wall::kGaps,    Wall::kUnknown};

// What an operator does about a hand-off that failed.
std::string_view failure(Errc why) {
  switch (why) {
    case Errc::kDisconnected:
    case Errc::kUnavailable:
      return "peer_lost";
    case Errc::kDeadline:
      return "timeout";
    case Errc::kOverloaded:
      return "no_space";
    case Errc::kInvalid:
      return "incompatible";
    case Errc::kCancelled:
    case Errc::kStale:
      return "aborted";
    default:
      return "internal";
  }
}
template <class... Ops>
std::array<const char*, sizeof...(Ops)> op_names() {
  return {kernels::name(Ops{})...};
}

}  // namespace

std::span<const MetricSpec> metric_specs() { return kSpecs; }

PrometheusProbes::PrometheusProbes(Metrics& metrics) : metrics_(metrics) {
  add_steps();
  add_machine();
  add_sequences();
  add_handoffs();
  add_outcomes();
}

void PrometheusProbes::add_steps() {
  for (const char* name :
       op_names<kernels::Embed, kernels::RmsNorm, kernels::QuantizeRows, kernels::MatMul,
                kernels::RopeAppendKv, kernels::Attention, kernels::SwiGlu, kernels::AdjustLogits,
                kernels::LogProbs, kernels::Sample>()) {
    op(name);
  }
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode, StepKind::kMixed}) {
    const MetricLabels labels{{"kind", name(kind)}};
    Kind& k = kinds_[static_cast<size_t>(kind)];
    k.steps = metrics_.counter(kSpecs[kSteps], labels);
    k.seconds = metrics_.counter(kSpecs[kStepSeconds], labels);
    k.duration = metrics_.histogram(kSpecs[kStepDuration], labels);
  }
  gap_seconds_ = metrics_.counter(kSpecs[kGapSeconds]);
  prefill_tokens_ = metrics_.counter(kSpecs[kStepTokens], {{"phase", "prefill"}});
  decode_tokens_ = metrics_.counter(kSpecs[kStepTokens], {{"phase", "decode"}});
}

const PrometheusProbes::Op& PrometheusProbes::op(std::string_view name) {
  const auto found = ops_.find(name);
  if (found != ops_.end()) return found->second;
  const std::string text(name);
  const auto bytes = [&](const char* kind) {
    return metrics_.counter(kSpecs[kDramBytes], {{"op", text}, {"kind", kind}});
  };
  const MetricLabels labels{{"op", text}};
  const Op made{bytes("weights"), bytes("kv"), bytes("activations"),
                metrics_.counter(kSpecs[kFlops], labels),
                metrics_.counter(kSpecs[kOpSeconds], labels)};
  return ops_.emplace(text, made).first->second;
}

PrometheusProbes::Phase PrometheusProbes::phase(const char* name) {
  const MetricLabels labels{{"phase", name}};
  Phase p;
  p.bandwidth = metrics_.gauge(kSpecs[kBandwidth], labels);
  p.compute = metrics_.gauge(kSpecs[kCompute], labels);
  LabelValues walls;
  for (const Wall wall : kWalls) walls.emplace_back(headrace::name(wall));
  p.walls = metrics_.gauges(kSpecs[kWall], "wall", walls, labels);
  p.set({});
  return p;
}

void PrometheusProbes::add_machine() {
  prefill_ = phase("prefill");
  decode_ = phase("decode");
  working_set_ = metrics_.gauge(kSpecs[kWorkingSet]);
  read_limit_ = metrics_.gauge(kSpecs[kReadLimit]);
  int8_peak_ = metrics_.gauge(kSpecs[kPeak], {{"dtype", "int8"}});
  f32_peak_ = metrics_.gauge(kSpecs[kPeak], {{"dtype", "f32"}});
  bf16_peak_ = metrics_.gauge(kSpecs[kPeak], {{"dtype", "bf16"}});
  limits_raised_ = metrics_.counter(kSpecs[kLimitRaised]);
  weight_bytes_ = metrics_.gauge(kSpecs[kWeightBytes]);
  kv_token_bytes_ = metrics_.gauge(kSpecs[kKvTokenBytes]);
}

void PrometheusProbes::add_sequences() {
  running_ = metrics_.gauge(kSpecs[kRunning]);
  waiting_ = metrics_.gauge(kSpecs[kWaiting]);
  draining_ = metrics_.gauge(kSpecs[kDraining]);
  blocks_ = metrics_.gauges(kSpecs[kBlocks], "state",
                            {"free", "active", "cached", "incoming", "pinned", "quarantined"});
  kv_usage_ = metrics_.gauge(kSpecs[kUsage]);
  slack_tokens_ = metrics_.gauge(kSpecs[kSlack]);
  kv_short_ = metrics_.gauge(kSpecs[kShort]);
  prefix_asked_ = metrics_.counter(kSpecs[kPrefixAsked]);
  prefix_hit_ = metrics_.counter(kSpecs[kPrefixHit]);
  preempted_ = metrics_.counter(kSpecs[kPreempted]);
}

PrometheusProbes::Side PrometheusProbes::side(const char* transport, const char* name) {
  const MetricLabels labels{{"transport", transport}, {"side", name}};
  Side s;
  s.bytes = metrics_.counter(kSpecs[kHandoffBytes], labels);
  s.ended = metrics_.counter(kSpecs[kHandoffs], labels);
  s.seconds =
      metrics_.histograms(kSpecs[kHandoffSeconds], "phase", {"wait", "wire", "total"}, labels);
  s.failures = metrics_.counters(
      kSpecs[kHandoffFailures], "reason",
      {"peer_lost", "timeout", "no_space", "incompatible", "aborted", "internal"}, labels);
  return s;
}

PrometheusProbes::Way PrometheusProbes::way(const char* transport) {
  const MetricLabels labels{{"transport", transport}};
  return {side(transport, "send"), side(transport, "receive"),
          metrics_.gauge(kSpecs[kLinkShare], labels), metrics_.gauge(kSpecs[kLinkLimit], labels)};
}

void PrometheusProbes::Way::set(const LinkUse& link) const {
  share.set(link.share);
  limit.set(link.limit);
}

void PrometheusProbes::add_handoffs() {
  tcp_ = way("tcp");
  inflight_ = metrics_.gauge(kSpecs[kInflight]);
}

void PrometheusProbes::add_outcomes() {
  failed_ = metrics_.counters(kSpecs[kFailed], "reason", error_values());
  refused_ = metrics_.counters(kSpecs[kRefused], "reason", error_values());
  loaded_ = metrics_.gauge(kSpecs[kLoaded]);
  load_seconds_ = metrics_.gauge(kSpecs[kLoadSeconds]);
  model_bytes_ = metrics_.gauge(kSpecs[kModelBytes]);
}

void PrometheusProbes::loading(double share) { loaded_.set(share); }

void PrometheusProbes::model(const ModelCard& card, uint32_t blocks, double load_seconds) {
  loaded_.set(1);
  load_seconds_.set(load_seconds);
  model_bytes_.set(static_cast<double>(card.cost.weight_bytes));
  weight_bytes_.set(static_cast<double>(card.cost.weight_bytes));
  kv_token_bytes_.set(static_cast<double>(card.cost.kv_token_bytes));
  metrics_
      .gauge(kSpecs[kCacheConfig], {{"model", card.name},
                                    {"layout", card.kv_layout},
                                    {"block_tokens", std::to_string(card.block_tokens)},
                                    {"blocks", std::to_string(blocks)},
                                    {"block_bytes", std::to_string(card.block_bytes)}})
      .set(1);
}

void PrometheusProbes::step(const StepReport& report) {
  for (const kernels::OpAccount& account : report.accounts) {
    const Op& to = op(account.op);
    to.weights.add(static_cast<double>(account.cost.weight_bytes));
    to.kv.add(static_cast<double>(account.cost.kv_bytes));
    to.activations.add(static_cast<double>(account.cost.activation_bytes));
    to.flops.add(static_cast<double>(account.cost.flops));
    to.seconds.add(account.seconds);
  }
  const Kind& kind = kinds_.at(static_cast<size_t>(report.kind));
  kind.steps.add();
  kind.seconds.add(report.seconds);
  kind.duration.observe(report.seconds);
  gap_seconds_.add(report.gap);
  prefill_tokens_.add(report.prefill_tokens);
  decode_tokens_.add(report.decode_rows);
}

void PrometheusProbes::lanes() { nccl_ = way("nccl"); }

void PrometheusProbes::handoff(const HandoffReport& report) {
  const Way& way = report.lane == LaneKind::kNccl && nccl_ ? *nccl_ : tcp_;
  const Side& to = report.sent ? way.sent : way.received;
  to.bytes.add(static_cast<double>(report.bytes));
  if (!report.status.ok()) return to.failures[failure(report.status.code)].add();
  to.ended.add();
  to.seconds["wait"].observe(report.wait);
  to.seconds["wire"].observe(report.wire);
  to.seconds["total"].observe(report.total);
}

void PrometheusProbes::Phase::set(const Saturation& s) const {
  bandwidth.set(s.bandwidth);
  compute.set(s.compute);
  for (const Wall wall : kWalls) walls[name(wall)].set(wall == s.wall ? 1 : 0);
}

void PrometheusProbes::gauges(const WorkerGauges& g) {
  prefill_.set(g.prefill);
  decode_.set(g.decode);
  working_set_.set(static_cast<double>(g.working_set));
  read_limit_.set(g.read_limit);
  int8_peak_.set(g.int8_peak);
  f32_peak_.set(g.f32_peak);
  bf16_peak_.set(g.bf16_peak);
  limits_raised_.raise_to(static_cast<double>(g.limits_raised));
  running_.set(g.running);
  waiting_.set(g.waiting);
  draining_.set(g.draining ? 1 : 0);
  const BlockCounts& b = g.blocks;
  blocks_["free"].set(b.free);
  blocks_["active"].set(b.active);
  blocks_["cached"].set(b.cached);
  blocks_["incoming"].set(b.incoming);
  blocks_["pinned"].set(b.pinned);
  blocks_["quarantined"].set(b.quarantined);
  const double used = static_cast<double>(b.active) + b.incoming + b.pinned + b.quarantined;
  kv_usage_.set(b.total > 0 ? used / b.total : 0);
  slack_tokens_.set(static_cast<double>(g.slack_tokens));
  kv_short_.set(g.kv_short ? 1 : 0);
  inflight_.set(g.transfers);
  tcp_.set(g.links[static_cast<size_t>(LaneKind::kTcp)]);
  if (nccl_) nccl_->set(g.links[static_cast<size_t>(LaneKind::kNccl)]);
}

void PrometheusProbes::prefix(uint32_t asked, uint32_t hit) {
  prefix_asked_.add(asked);
  prefix_hit_.add(hit);
}
void PrometheusProbes::preempted() { preempted_.add(); }
void PrometheusProbes::failed(Errc why) { failed_[name(why)].add(); }
void PrometheusProbes::refused(Errc why) { refused_[name(why)].add(); }

}  // namespace headrace::worker

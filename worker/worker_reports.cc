#include <algorithm>
#include <utility>

#include "worker/worker.h"

// How the worker stands and what it did: for the coordinator's eyes and for those of whoever runs
// it.

namespace headrace::worker {

using namespace to_coordinator;  // NOLINT: this actor speaks these words all the time

namespace {

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

bool under_way(const Sequence& s) {
  return s.stage == Stage::kGranted || s.stage == Stage::kReceiving || s.sender != nullptr;
}

}  // namespace

Beat Worker::make_beat() {
  Beat b;
  b.incarnation = incarnation_;
  b.steps = counters_.steps;
  b.blocks = pool_.counts();
  for (const auto& [key, s] : sequences_) {
    if (s.stage == Stage::kEnding) continue;
    b.transfers.push_back(s.transfer);
    const uint64_t left = s.tokens.size() - s.computed;
    if (s.stage == Stage::kWaiting) {
      ++b.waiting;
      b.waiting_tokens += left - s.prefix.hits.size() * engine_.card().block_tokens;
    } else if (s.stage == Stage::kRunning) {
      ++b.running;
      b.context_tokens += s.computed;
      if (left > 1) b.waiting_tokens += left;
    }
  }
  b.loop_lag = loop_lag_;
  b.correction = learner_.value();
  b.draining = draining();
  b.prefill = meter_.prefill();
  b.decode = meter_.decode();
  PrefixLog::Part part = cache_.events();
  b.prefix_from = part.from;
  b.prefix_events = std::move(part.events);
  b.ping_seen = ping_seen_;
  return b;
}

WorkerGauges Worker::gauges() const {
  WorkerGauges g;
  g.blocks = pool_.counts();
  for (const auto& [key, s] : sequences_) {
    if (s.stage == Stage::kEnding) continue;
    if (s.stage == Stage::kWaiting) ++g.waiting;
    if (under_way(s)) ++g.transfers;
    if (s.stage != Stage::kRunning) continue;
    ++g.running;
    g.slack_tokens += s.blocks.size() * uint64_t{engine_.card().block_tokens} - s.computed;
  }
  g.kv_arriving = receiver_ && receiver_->arriving();
  for (const LaneKind way : {LaneKind::kTcp, LaneKind::kNccl}) {
    if (receiver_) g.links[static_cast<size_t>(way)] = receiver_->link(way);
  }
  g.kv_short = kv_short_ || grant_short_;
  g.draining = draining();
  return g;
}

void Worker::report_gauges(Instant now) {
  WorkerGauges g = gauges();
  meter_.sweep(g, seconds(now - swept_));
  swept_ = now;
  grant_short_ = false;
  meter_.describe(g);
  probes_->gauges(g);
}

// A step as its end finds it, before what it has made is applied.
StepReport Worker::describe(const InFlight& flight, const StepDone& done) {
  const Instant now = strand_->now();
  StepReport report;
  report.decode_rows = static_cast<uint32_t>(flight.shape.decode_rows);
  report.prefill_tokens = static_cast<uint32_t>(flight.shape.prefill_tokens);
  report.kind = StepKind::kMixed;
  if (report.prefill_tokens == 0) report.kind = StepKind::kDecode;
  if (report.decode_rows == 0) report.kind = StepKind::kPrefill;
  report.seconds = done.seconds;
  // What this strand was late to hear of one step counts into the time of the next one: as much
  // less is between those.
  if (!step_ended_) gap_ = 0;
  if (step_ended_) gap_ += seconds(now - *step_ended_) - done.seconds;
  report.gap = std::max(0.0, gap_);
  gap_ -= report.gap;
  step_ended_ = now;
  const ModelCard& card = engine_.card();
  report.working_set = card.cost.weight_bytes + pool_.counts().active * card.block_bytes;
  report.accounts = done.accounts;
  return report;
}

void Worker::report_sent(Sequence& s, const Status& status) {
  s.reported = true;
  HandoffReport report;
  report.sent = true;
  report.bytes = s.sender->bytes_sent();
  report.lane = s.sender->lane_kind();
  report.wire = seconds(s.sender->on_wire());
  report.total = seconds(strand_->now() - s.began);
  report.wait = report.bytes > 0 ? seconds(s.sender->waited()) : report.total;
  report.status = status;
  probes_->handoff(report);
}

void Worker::report_received(Sequence& s, const Status& status) {
  s.reported = true;
  HandoffReport report;
  report.bytes = s.received.bytes;
  report.lane = s.received.lane;
  report.wire = seconds(s.received.on_wire);
  report.total = seconds(strand_->now() - s.began);
  report.wait = report.bytes > 0 ? seconds(s.received.first - s.began) : report.total;
  report.status = status;
  probes_->handoff(report);
}

void Worker::report_broken(Sequence& s, const Status& why) {
  if (s.reported || s.stage == Stage::kEnding || !under_way(s)) return;
  // The end of the answer may overtake the verdict.
  const bool complete = why.ok() && s.sender && s.sender->committed();
  Status status;
  if (!complete && why.code == Errc::kDeadline)
    status = why;
  else if (!complete)
    status = error(Errc::kCancelled, "ended before all was handed over: " + why.message);
  s.sender ? report_sent(s, status) : report_received(s, status);
}

}  // namespace headrace::worker

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "worker/worker.h"

// The step after the one in flight, planned beside it: what it will have done is known but for the
// tokens that it samples, and those the engine puts in. Only what goes on anyway is prepared; what
// begins, preempts, or depends on more than tokens is left to the end of the step.

namespace headrace::worker {

void Worker::prepare_step() {
  if (!options_.prepare || !step_ || prepared_ || !registered() || paused()) return;
  const std::optional<Lookahead> next = look_ahead();
  if (!next) return;
  const Plan plan = worker::plan(next->input);
  const bool admits = std::any_of(plan.parts.begin(), plan.parts.end(),
                                  [](const PlanPart& part) { return part.from_waiting; });
  if (admits || !plan.preempt.empty()) return;
  kv_short_ = plan.kv_short;
  InFlight flight;
  Step step;
  for (const PlanPart& part : plan.parts) {
    if (part.tokens > 0)
      add_part(step, flight, next->running[part.index], part, next->ahead[part.index]);
  }
  if (step.sequences.empty()) return;
  flight.id = ++step_id_;
  flight.limit = step_limit(flight.shape);
  prepared_ = std::move(flight);
  if (!engine_.prepare(std::move(step), teller(prepared_->id)))
    drop(*std::exchange(prepared_, std::nullopt));
}

// The batch as it will be if no answer ends before its length. Nothing where that cannot be told,
// or would not be enough to go on.
std::optional<Worker::Lookahead> Worker::look_ahead() {
  std::vector<Key> running;
  std::vector<Key> waiting;
  Lookahead next{plan_input(running, waiting), {}, {}};
  std::vector<Ahead> ahead(running.size());
  for (uint32_t i = 0; i < step_->parts.size(); ++i) {
    const StepPart& part = step_->parts[i];
    const auto at = std::lower_bound(running.begin(), running.end(), part.key);
    if (at == running.end() || *at != part.key) continue;  // it is over
    Ahead& its = ahead[static_cast<size_t>(at - running.begin())];
    its.tokens = part.tokens;
    if (part.sample) its.follows = i;
  }
  const std::vector<PlanSequence> before = std::exchange(next.input.running, {});
  for (size_t i = 0; i < running.size(); ++i) {
    const Sequence& s = sequences_.at(running[i]);
    if (!predictable(s, ahead[i])) return std::nullopt;
    PlanSequence p = before[i];
    if (ends(s, ahead[i])) {
      if (!waiting.empty()) return std::nullopt;  // what it frees may let someone begin
      next.input.granted_blocks += outstanding(p, next.input.limits.block_tokens);  // until then
      continue;
    }
    p.computed += ahead[i].tokens;
    if (ahead[i].follows) ++p.length;
    next.input.running.push_back(p);
    next.running.push_back(running[i]);
    next.ahead.push_back(ahead[i]);
  }
  return next;
}

// Whether the step in flight completes it.
bool Worker::ends(const Sequence& s, const Ahead& ahead) const {
  if (s.prefill_only) return s.computed + ahead.tokens == s.tokens.size();
  return ahead.follows && s.made() + 1 == s.max_tokens;
}

// Penalties want the token itself, a digest and an exchange the blocks while no step runs.
bool Worker::predictable(const Sequence& s, const Ahead& ahead) const {
  if (s.exchange_due) return false;
  if (ends(s, ahead)) return !s.kv_digest;
  return !ahead.follows || !s.penalties.counts();
}

// The prepared step does not begin, unless it has; then its end is waited for.
void Worker::withdraw() {
  if (prepared_ && engine_.withdraw()) drop(*std::exchange(prepared_, std::nullopt));
}

// It does not run. The blocks taken for it stay with its sequences, which need them next.
void Worker::drop(const InFlight& prepared) {
  for (const StepPart& part : prepared.parts) {
    Sequence& s = sequences_.at(part.key);  // one in a step is never erased
    CHECK(s.in_step > 0);
    --s.in_step;
  }
}

// The step before has ended: the engine has begun this one, or never will.
void Worker::settle_prepared(bool followed) {
  CHECK(prepared_ || !followed);
  if (!prepared_) return;
  InFlight next = *std::exchange(prepared_, std::nullopt);
  if (!followed) return drop(next);
  next.since = strand_->now();
  step_ = std::move(next);
  ++counters_.followed;
}

}  // namespace headrace::worker

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "worker/worker.h"

// Plan, run, apply: everything that moves the batch forward.

namespace headrace::worker {

using namespace to_coordinator;  // NOLINT: this actor speaks these words all the time

// Plans once for all that the strand has to tell us first. A step that was prepared without
// knowing of it does not begin any more.
void Worker::schedule() {
  withdraw();
  if (scheduled_ || step_) return;
  scheduled_ = true;
  strand_->post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->try_step();
    self->prepare_step();
  });
}

void Worker::try_step() {
  scheduled_ = false;
  if (step_ || !registered() || paused()) return;
  std::vector<Key> running;
  std::vector<Key> waiting;
  const PlanInput input = plan_input(running, waiting);
  if (input.running.empty() && input.waiting.empty()) {
    kv_short_ = false;
    step_ended_.reset();
    return;
  }
  const Plan plan = worker::plan(input);
  kv_short_ = plan.kv_short;
  for (const uint32_t i : plan.preempt) preempt(sequences_.at(running[i]));
  // All hits are held before a block is taken, which may evict whatever is not.
  for (const PlanPart& part : plan.parts) {
    if (part.from_waiting) admit(waiting[part.index]);
  }
  InFlight flight;
  flight.since = strand_->now();
  Step step;
  for (const PlanPart& part : plan.parts) {
    const Key key = (part.from_waiting ? waiting : running)[part.index];
    if (part.tokens > 0) add_part(step, flight, key, part, {});
  }
  if (step.sequences.empty()) {
    // What was freed, or was complete at once, may let someone else begin.
    if (!plan.preempt.empty() || !plan.parts.empty()) schedule();
    return;
  }
  flight.id = ++step_id_;
  flight.limit = step_limit(flight.shape);
  step_ = std::move(flight);
  engine_.run(std::move(step), teller(step_->id));
}

std::function<void(StepDone)> Worker::teller(uint64_t step) {
  return [self = Ref<Worker>(strand_, weak_from_this()), step](StepDone done) {
    self.tell(StepFinished{step, std::move(done)});
  };
}

PlanInput Worker::plan_input(std::vector<Key>& running, std::vector<Key>& waiting) {
  PlanInput in;
  in.limits.block_tokens = engine_.card().block_tokens;
  in.limits.token_budget =
      learner_.paced_tokens(std::min(options_.token_budget, engine_.rows_max()));
  in.limits.ageing_per_token =
      std::max(in.limits.ageing_per_token, learner_.token_time(in.limits.token_budget));
  in.limits.time = &learner_.model();
  in.limits.mixed_ratio = learner_.mixed_ratio();
  in.limits.mixed_target = options_.mixed_target;
  in.limits.rows_max = engine_.rows_max();
  in.limits.running_max = options_.running_max;
  in.free_blocks = pool_.available();
  for (auto& [key, s] : sequences_) {
    if (s.stage == Stage::kWaiting) match_hits(s);
    const PlanSequence p = plan_sequence(s);
    switch (s.stage) {
      case Stage::kRunning:
        running.push_back(key);
        in.running.push_back(p);
        break;
      case Stage::kWaiting:
        waiting.push_back(key);
        in.waiting.push_back(p);
        break;
      case Stage::kGranted:
      case Stage::kReceiving:
        in.granted_blocks += outstanding(p, in.limits.block_tokens);
        ++in.granted_sequences;
        break;
      case Stage::kSending:
      case Stage::kEnding:
        break;  // want nothing more
    }
  }
  return in;
}

PlanSequence Worker::plan_sequence(const Sequence& s) const {
  PlanSequence p;
  p.length = static_cast<uint32_t>(s.tokens.size());
  p.computed = s.computed;
  p.blocks = static_cast<uint32_t>(s.blocks.size());
  p.promised = s.promised_tokens;
  p.samples = !s.prefill_only;
  p.arrived = s.arrived.time_since_epoch();
  if (!options_.prefix_cache) return p;
  p.shared = shared_blocks(s);
  p.hits = static_cast<uint32_t>(s.prefix.hits.size());
  p.idle_hits = cache_.idle_hits(s.prefix);
  p.computed += p.hits * engine_.card().block_tokens;
  return p;
}

// Tokens for which blocks are promised: all known and, where tokens are made, a reserve to grow.
uint32_t Worker::promise(const Sequence& s) const {
  const auto length = static_cast<uint32_t>(s.tokens.size());
  if (s.prefill_only) return length;
  return length + std::min(s.max_tokens - s.made(), kGrowthReserve);
}

// Gives up the blocks of the youngest; it is recomputed from its tokens, with the same result, as
// far as they are evicted from the prefix cache meanwhile.
void Worker::preempt(Sequence& s) {
  CHECK(s.in_step == 0 && s.stage == Stage::kRunning && !s.prefill_only);
  free_blocks(s);
  if (!planted(Mistake::kPreemptedKeepsCount)) s.computed = 0;
  s.stage = Stage::kWaiting;
  s.promised_tokens = promise(s);
  ++counters_.preempted;
  probes_->preempted();
}

// A sequence that waited begins, with what the prefix cache has of it.
void Worker::admit(Key key) {
  Sequence& s = sequences_.at(key);
  s.stage = Stage::kRunning;
  acquire_hits(s);
  if (!s.prefill_only) return;
  open_sender(key, s);
  prefilled(s);
}

// How long a step may take before what it carries is given up.
Duration Worker::step_limit(const StepShape& shape) const {
  const Duration predicted = learner_.predict(shape);
  if (predicted <= Duration{0}) return options_.step_max;  // nothing was measured
  const Duration patience =
      std::min(std::max(kStepPatience, kStepFactor * predicted), options_.step_max);
  return std::max(patience, 2 * predicted);
}

// Of a step that begins now, or of a prepared one: then the step in flight has done `ahead`.
void Worker::add_part(Step& step, InFlight& flight, Key key, const PlanPart& part,
                      const Ahead& ahead) {
  Sequence& s = sequences_.at(key);
  auto fresh = pool_.take(part.new_blocks, Hold::kActive);
  CHECK(fresh.has_value());  // the plan counted them
  s.blocks.insert(s.blocks.end(), fresh->begin(), fresh->end());
  ++s.in_step;
  const uint32_t computed = s.computed + ahead.tokens;

  StepSequence out;
  for (const BlockRef& ref : s.blocks) out.blocks.push_back(raw(ref.block));
  out.position = computed;
  if (ahead.follows) {
    out.follows = ahead.follows;
    out.end_tokens = s.end_tokens;
    out.tokens = {0};
  } else {
    const auto from = s.tokens.begin() + computed;
    out.tokens.assign(from, from + part.tokens);
  }
  out.sample = part.sample;
  out.sampling = s.sampling;
  if (part.sample && !s.penalties.idle()) out.edits = s.penalties.edits(s.tokens);
  out.index = s.prefill_only ? 0 : s.next_index() + (ahead.follows ? 1 : 0);
  step.sequences.push_back(std::move(out));

  flight.parts.push_back({key, part.tokens, part.sample});
  StepShape& shape = flight.shape;
  if (part.tokens == 1 && part.sample) {
    ++shape.decode_rows;
    shape.context_tokens += computed + 1;
  } else {
    const uint64_t before = shape.prefill_tokens;
    shape.prefill_tokens += part.tokens;
    shape.prefill_after =
        (shape.prefill_after * before + uint64_t{computed} * part.tokens) / shape.prefill_tokens;
  }
}

void Worker::open_sender(Key key, Sequence& s) {
  SendJob job;
  job.transfer = s.transfer;
  job.attempt = s.attempt;
  job.prefill = incarnation_;
  job.layout = layout_;
  job.block_bytes = engine_.card().block_bytes;
  job.tokens = static_cast<uint32_t>(s.tokens.size());
  job.grant = s.grant;
  s.sender = std::make_unique<HandoffSender>(
      strand_, network_, options_.handoff, std::move(job), block_memory(),
      [this, key](Status status) { sent(key, std::move(status)); });
}

void Worker::on(StepFinished m) {
  CHECK(step_ && step_->id == m.step && step_->parts.size() == m.done.sampled.size());
  const InFlight flight = *std::exchange(step_, std::nullopt);
  settle_prepared(m.done.followed);
  ++counters_.steps;
  learner_.learn(flight.shape, m.done.seconds);
  const StepReport report = describe(flight, m.done);
  const auto& sampled = m.done.sampled;
  if (std::find(sampled.begin(), sampled.end(), StepDone::kNumeric) != sampled.end()) {
    cache_.clear();  // whatever made it, the numbers behind it may be spoilt too
  }
  Tokens out;
  for (size_t i = 0; i < flight.parts.size(); ++i) apply(flight.parts[i], m.done, i, out);
  // Where no step was prepared the device waits for the next one and for nothing else: what this
  // one has to tell is told beside it.
  try_step();
  if (!out.runs.empty()) tell(std::move(out));
  meter_.step(report);
  probes_->step(report);
  schedule();
  prepare_step();
}

void Worker::apply(const StepPart& part, StepDone& done, size_t index, Tokens& out) {
  Sequence& s = sequences_.at(part.key);  // one in a step is never erased
  CHECK(s.in_step > 0);
  --s.in_step;
  if (s.stage == Stage::kEnding) return release(part.key, s.quiesce);
  s.computed += part.tokens;
  s.compute_seconds += done.seconds;
  if (!part.sample) counters_.prefilled += part.tokens;
  const Token token = done.sampled[index];
  if (token != StepDone::kNumeric) leave_in_cache(s);
  if (s.prefill_only) return prefilled(s);
  if (!part.sample) return;
  Logprobs logprobs;
  if (!done.logprobs.empty()) logprobs = std::move(done.logprobs.at(index));
  sampled(s, part.key, token, std::move(logprobs), out);
}

void Worker::sampled(Sequence& s, Key key, Token token, Logprobs logprobs, Tokens& out) {
  TokenRun run;
  run.transfer = s.transfer;
  run.attempt = s.attempt;
  run.position = s.next_index();
  run.cached_tokens = s.cached_tokens;
  if (token == StepDone::kNumeric) {
    run.finish = Finish::kError;
    run.status = error(Errc::kNumeric, "the logits hold NaN or infinity");
  } else {
    CHECK(token >= 0 && static_cast<uint32_t>(token) < engine_.card().vocab);
    ++counters_.tokens;
    if (std::find(s.end_tokens.begin(), s.end_tokens.end(), token) != s.end_tokens.end()) {
      run.finish = Finish::kStop;
    } else {
      s.tokens.push_back(token);
      run.ids.push_back(token);
      if (s.sampling.logprobs > 0) run.logprobs.push_back(std::move(logprobs));
      if (s.made() == s.max_tokens) run.finish = Finish::kLength;
    }
  }
  const bool over = run.finish != Finish::kNone;
  if (over && s.kv_digest) run.kv = kv_digest(s);
  if (over) {
    remember(s, Tokens{{run}});
    release(key, false);
  }
  out.runs.push_back(std::move(run));
}

// Pushes what is complete and was not pushed; after the last of it the sequence only sends.
void Worker::prefilled(Sequence& s) {
  const bool all = s.computed == s.tokens.size();
  const uint32_t block_tokens = engine_.card().block_tokens;
  uint32_t complete = all ? blocks_for(s.computed, block_tokens) : s.computed / block_tokens;
  // The sender reads what it was given to the end: nothing that is exchanged yet.
  CHECK(!all || !s.exchange_due);  // it is in no step any more
  if (s.exchange_due) complete = std::min(complete, s.prefix.added);
  std::vector<BlockId> run;
  for (uint32_t i = s.pushed_blocks; i < complete; ++i) run.push_back(s.blocks[i].block);
  s.pushed_blocks = std::max(s.pushed_blocks, complete);
  s.sender->push(std::move(run));
  if (!all) return;
  s.stage = Stage::kSending;
  pool_.change(s.blocks, Hold::kActive, Hold::kPinned);
  s.active_blocks = 0;
  s.rest = Hold::kPinned;
  s.sender->finish();
}

void Worker::sent(Key key, Status status) {
  Sequence& s = sequences_.at(key);
  report_sent(s, status);
  if (!status.ok()) return fail(key, std::move(status));
  const auto compute = std::chrono::duration<double>(s.compute_seconds);
  PrefillDone done{s.transfer, s.attempt, std::chrono::duration_cast<Duration>(compute),
                   s.sender->bytes_sent(), s.cached_tokens};
  remember(s, done);
  tell(std::move(done));
  release(key, false);
}

// XXH3-128 of the sequence's blocks in order, unused slots (zeros) included.
Digest Worker::kv_digest(const Sequence& s) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK);
  const uint32_t filled = blocks_for(s.computed, engine_.card().block_tokens);
  CHECK(filled <= s.blocks.size());
  for (uint32_t i = 0; i < filled; ++i) {
    const auto bytes = engine_.read_block(s.blocks[i].block, 0, engine_.card().block_bytes);
    CHECK(XXH3_128bits_update(state.get(), bytes.data(), bytes.size()) == XXH_OK);
  }
  const XXH128_hash_t h = XXH3_128bits_digest(state.get());
  return {h.high64, h.low64};
}

}  // namespace headrace::worker

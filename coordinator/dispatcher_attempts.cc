#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"

namespace headrace::coordinator {
namespace {

uint32_t blocks_for(uint64_t tokens, uint32_t block_tokens) {
  return static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

// What another worker would answer as well: no use in trying again.
bool is_final(Errc code) {
  return code == Errc::kInvalid || code == Errc::kNumeric || code == Errc::kContextExceeded ||
         code == Errc::kNotFound;
}

Duration backoff(int failures) {
  Duration delay = kBackoffMin;
  for (int i = 1; i < failures && delay < kBackoffMax; ++i) delay *= 2;
  return std::min(delay, kBackoffMax);
}

}  // namespace

// The one function that assigns work. In order of arrival: nothing overtakes a large request.
void Dispatcher::place() {
  if (placing_ || !text_ || !registry_.card()) return;
  placing_ = true;
  const Instant now = strand_->now();
  for (auto it = queue_.begin(); it != queue_.end();) {
    Record& record = **it++;  // what follows may take the record out of the queue
    if (record.not_before > now) continue;
    Status status = record.tokenized ? Status{} : tokenize(record);
    if (status.ok()) status = fit(record);
    if (!status.ok()) {
      finish(record, Finish::kError, std::move(status));
      continue;
    }
    const std::optional<Route> chosen = choose(record, now);
    if (!chosen) break;
    queue_.remove(&record);
    dispatch(record, *chosen, now);
  }
  placing_ = false;
}

std::vector<WorkerView> Dispatcher::views(Instant now) const {
  std::vector<WorkerView> out;
  for (const auto& [id, worker] : registry_) {
    if (worker.stalled) continue;
    WorkerView v;
    v.id = id;
    v.role = worker.hello.role;
    v.receives = worker.hello.kv.port != 0;
    v.available = now >= worker.refused_until;
    v.in_flight = worker.load.in_flight();
    v.prefill_tokens = worker.load.prefill_tokens;
    v.decodes = worker.load.decodes;
    v.context_tokens = worker.load.context_tokens;
    v.blocks_total = worker.hello.kv_blocks;
    v.blocks_reserved = worker.load.blocks;
    v.time = {worker.hello.limits, worker.hello.card.cost, worker.beat.correction};
    out.push_back(std::move(v));
  }
  return out;
}

std::optional<Route> Dispatcher::choose(const Record& record, Instant now) const {
  const ModelCard& card = *registry_.card();
  const uint64_t prompt = record.prompt.size() + record.log.size();
  const uint32_t left = record.max_tokens - record.log.size();
  RouteRequest request;
  request.prompt_tokens = prompt;
  request.prompt_blocks = blocks_for(prompt, card.block_tokens);
  request.blocks = std::min(blocks_for(prompt + std::min(left, kGrowthReserve), card.block_tokens),
                            registry_.decode_blocks_max());
  request.whole_blocks =
      blocks_for(uint64_t{record.prompt.size()} + record.max_tokens, card.block_tokens);
  request.kv_token_bytes = card.cost.kv_token_bytes;
  request.mode = options_.pd;
  request.avoid = record.avoid;
  return route(request, views(now));
}

Status Dispatcher::fit(Record& record) const {
  if (registry_.decoders() == 0) return {};
  const ModelCard& card = *registry_.card();
  const uint32_t most = registry_.decode_blocks_max();
  const uint64_t holds = uint64_t{most} * card.block_tokens, prompt = record.prompt.size();
  if (prompt + 1 > holds)
    return error(Errc::kContextExceeded,
                 "prompt needs " + std::to_string(blocks_for(prompt + 1, card.block_tokens)) +
                     " KV blocks, no worker holds more than " + std::to_string(most));
  // How long "to the end" is must not change once tokens were made.
  if (!record.submit.max_tokens && record.attempts == 0)
    record.max_tokens = static_cast<uint32_t>(std::min<uint64_t>(holds, card.context) - prompt);
  if (prompt + record.max_tokens <= holds) return {};
  const uint64_t need = blocks_for(prompt + record.max_tokens, card.block_tokens);
  return error(Errc::kContextExceeded,
               "prompt and max_tokens of " + std::to_string(record.max_tokens) + " need " +
                   std::to_string(need) + " KV blocks, no worker holds more than " +
                   std::to_string(most));
}

void Dispatcher::dispatch(Record& record, const Route& chosen, Instant now) {
  CHECK(!record.attempt);
  AttemptRecord attempt;
  attempt.attempt = Attempt{++record.attempts};
  attempt.transfer = random_.mint<TransferId>();
  attempt.decode = chosen.decode;
  attempt.prefill = chosen.prefill;
  attempt.prompt = static_cast<uint32_t>(record.prompt.size()) + record.log.size();
  record.attempt = attempt;
  if (!record.dispatched) record.dispatched = now;
  attempts_.emplace(attempt.transfer, &record);
  ++totals_.attempts;
  book(record);
  enter(record, chosen.prefill ? Phase::kGranting : Phase::kDecoding);
  send_prepare(record);
}

void Dispatcher::send_prepare(Record& record) {
  const AttemptRecord& attempt = *record.attempt;
  to_worker::Prepare m;
  m.term = options_.term;
  m.worker = registry_.find(attempt.decode)->hello.incarnation;
  m.request = record.submit.request;
  m.transfer = attempt.transfer;
  m.attempt = attempt.attempt;
  m.prompt = record.prompt;
  m.prompt.insert(m.prompt.end(), record.log.tokens().begin(), record.log.tokens().end());
  m.generated = record.log.size();
  m.max_tokens = record.max_tokens - record.log.size();
  m.sampling = record.sampling;
  m.end_tokens = text_->end_tokens();
  m.remote_prefill = attempt.prefill.has_value();
  m.kv_digest = record.submit.kv_digest;
  m.deadline = record.admitted + record.submit.deadline - strand_->now();
  tell_worker(attempt.decode, std::move(m));
}

void Dispatcher::enter(Record& record, Phase phase) {
  record.phase = phase;
  record.attempt->since = strand_->now();
}

// Reserves on the workers what the attempt will use there.
void Dispatcher::book(Record& record) {
  AttemptRecord& attempt = *record.attempt;
  const uint32_t block_tokens = registry_.card()->block_tokens;
  const uint32_t left = record.max_tokens - record.log.size();
  attempt.on_decode.decodes = 1;
  attempt.on_decode.context_tokens = attempt.prompt;
  attempt.on_decode.blocks =
      blocks_for(attempt.prompt + std::min(left, kGrowthReserve), block_tokens);
  Workload& prefilling = attempt.prefill ? attempt.on_prefill : attempt.on_decode;
  prefilling.prefills = 1;
  prefilling.prefill_tokens = attempt.prompt;
  registry_.find(attempt.decode)->load += attempt.on_decode;
  if (attempt.prefill) registry_.find(*attempt.prefill)->load += attempt.on_prefill;
}

void Dispatcher::release(WorkerId id, Workload& share) {
  if (WorkerRecord* worker = registry_.find(id)) worker->load -= share;
  share = {};
}

// The prompt is computed: the worker that did it is free for the next one.
void Dispatcher::prefill_over(Record& record) {
  AttemptRecord& attempt = *record.attempt;
  if (attempt.prefill) return release(*attempt.prefill, attempt.on_prefill);
  Workload part;
  part.prefills = std::exchange(attempt.on_decode.prefills, 0);
  part.prefill_tokens = std::exchange(attempt.on_decode.prefill_tokens, 0);
  release(attempt.decode, part);
}

std::vector<WorkerId> Dispatcher::sides(const AttemptRecord& attempt) const {
  std::vector<WorkerId> out = {attempt.decode};
  if (attempt.prefill) out.push_back(*attempt.prefill);
  return out;
}

void Dispatcher::close_attempt(Record& record, const Status& why) {
  AttemptRecord& attempt = *record.attempt;
  Closing closing{attempt.attempt, {}, strand_->now()};
  for (const WorkerId id : sides(attempt)) {
    if (!registry_.find(id)) continue;
    tell_worker(id, to_worker::Cancel{options_.term, attempt.transfer, attempt.attempt, why});
    closing.open.push_back(id);
  }
  if (!closing.open.empty() && closing_.size() < kClosingMax)
    closing_.emplace(attempt.transfer, std::move(closing));
  release(attempt.decode, attempt.on_decode);
  if (attempt.prefill) release(*attempt.prefill, attempt.on_prefill);
  attempts_.erase(attempt.transfer);
  record.attempt.reset();
}

void Dispatcher::requeue(Record& record, Instant not_before) {
  CHECK(!record.attempt);
  record.phase = Phase::kQueued;
  record.queued = strand_->now();
  record.not_before = not_before;
  queue_.push_front(&record);
}

void Dispatcher::attempt_failed(Record& record, const std::vector<WorkerId>& culprits, Status why) {
  ++totals_.attempts_failed;
  close_attempt(record, why);
  // Only the last word was lost, not a token.
  if (record.log.size() == record.max_tokens) return finish(record, Finish::kLength, {});
  for (const WorkerId id : culprits)
    if (std::find(record.avoid.begin(), record.avoid.end(), id) == record.avoid.end())
      record.avoid.push_back(id);
  if (++record.failures >= kAttemptsMax && !is_final(why.code))
    why.message =
        "failed " + std::to_string(kAttemptsMax) + " times, its limit; at last: " + why.message;
  if (is_final(why.code) || record.failures >= kAttemptsMax)
    return finish(record, Finish::kError, std::move(why));
  // The first replay starts at once: whoever failed is avoided.
  const Duration delay = record.failures == 1 ? Duration{0} : backoff(record.failures);
  requeue(record, strand_->now() + delay);
  place();
}

void Dispatcher::tell_worker(WorkerId id, ToWorker message) {
  mesh_.tell(SendToWorker{id, std::move(message)});
}

Dispatcher::Record* Dispatcher::current(WorkerId from, const TransferId& transfer,
                                        Attempt attempt) {
  auto it = attempts_.find(transfer);
  const bool known = it != attempts_.end() && it->second->attempt->attempt == attempt &&
                     (it->second->attempt->decode == from || it->second->attempt->prefill == from);
  if (known) return it->second;
  ++totals_.stale;
  return nullptr;
}

void Dispatcher::handle(WorkerId from, to_coordinator::Grant m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  AttemptRecord& attempt = *record->attempt;
  if (record->phase != Phase::kGranting || attempt.decode != from) {
    ++totals_.stale;
    return;
  }
  const WorkerRecord& d = *registry_.find(from);
  const uint32_t tokens = attempt.prompt - 1;
  const uint32_t block_tokens = registry_.card()->block_tokens;
  const bool plausible =
      m.granted.decode == d.hello.incarnation && m.granted.endpoint.port != 0 &&
      m.granted.blocks.size() >= blocks_for(tokens, block_tokens) &&
      std::all_of(m.granted.blocks.begin(), m.granted.blocks.end(),
                  [&](const BlockRef& b) { return raw(b.block) < d.hello.kv_blocks; });
  if (!plausible)
    return attempt_failed(
        *record, {from},
        error(Errc::kInternal, title(from) + " granted blocks that cannot be its own"));
  to_worker::Start start;
  start.term = options_.term;
  start.worker = registry_.find(*attempt.prefill)->hello.incarnation;
  start.request = record->submit.request;
  start.transfer = m.transfer;
  start.attempt = m.attempt;
  start.tokens = record->prompt;
  start.tokens.insert(start.tokens.end(), record->log.tokens().begin(), record->log.tokens().end());
  start.tokens.pop_back();
  start.grant = std::move(m.granted);
  start.deadline = record->admitted + record->submit.deadline - strand_->now();
  enter(*record, Phase::kPrefilling);
  tell_worker(*attempt.prefill, std::move(start));
}

void Dispatcher::handle(WorkerId from, to_coordinator::Refuse m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  ++totals_.refusals;
  if (is_final(m.why.code)) {
    close_attempt(*record, m.why);
    return finish(*record, Finish::kError, std::move(m.why));
  }
  if (m.why.code != Errc::kOverloaded && m.why.code != Errc::kUnavailable)
    return attempt_failed(*record, {from}, std::move(m.why));
  // No harm done: it goes elsewhere or waits, within what is left of its time in the queue.
  const Instant now = strand_->now();
  registry_.find(from)->refused_until =
      now + (m.why.code == Errc::kOverloaded ? kBackoffMin : kBackoffMax);
  const Instant queued = record->queued;
  close_attempt(*record, m.why);
  requeue(*record, now);
  record->queued = queued;
  place();
}

void Dispatcher::handle(WorkerId from, to_coordinator::PrefillDone m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  if (record->attempt->prefill != from || record->attempt->prefill_done) {
    ++totals_.stale;
    return;
  }
  record->attempt->prefill_done = true;
  prefill_over(*record);
  if (record->phase == Phase::kPrefilling) enter(*record, Phase::kPrefilling);
}

void Dispatcher::handle(WorkerId from, to_coordinator::Owned m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  if (record->phase != Phase::kPrefilling || record->attempt->decode != from) {
    ++totals_.stale;
    return;
  }
  ++totals_.remote_prefills;
  record->remote_prefill = true;
  enter(*record, Phase::kDecoding);
}

void Dispatcher::handle(WorkerId from, to_coordinator::AttemptFailed m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  const bool decoding = record->phase == Phase::kDecoding;
  if (decoding && record->attempt->decode != from) {
    ++totals_.stale;  // its part was over: the decode worker has verified what it got
    return;
  }
  // In a hand-off the one who reports is often not the one who broke it: avoid the pair.
  const std::vector<WorkerId> culprits =
      decoding ? std::vector<WorkerId>{from} : sides(*record->attempt);
  m.why.message = title(from) + ": " + m.why.message;
  attempt_failed(*record, culprits, std::move(m.why));
}

void Dispatcher::handle(WorkerId from, to_coordinator::Tokens m) {
  for (to_coordinator::TokenRun& run : m.runs) take_run(from, run);
}

Status Dispatcher::check_run(const Record& record, const to_coordinator::TokenRun& run) const {
  const uint32_t vocab = registry_.card()->vocab;
  for (const Token id : run.ids)
    if (id < 0 || static_cast<uint32_t>(id) >= vocab)
      return error(Errc::kInternal, "sent token " + std::to_string(id) + " of a vocabulary of " +
                                        std::to_string(vocab));
  if (uint64_t{run.position} + run.ids.size() > record.max_tokens)
    return error(Errc::kInternal,
                 "sent more tokens than the " + std::to_string(record.max_tokens) + " it may");
  return {};
}

void Dispatcher::take_run(WorkerId from, to_coordinator::TokenRun& run) {
  Record* record = current(from, run.transfer, run.attempt);
  if (!record) return;
  const bool in_time = record->phase == Phase::kDecoding || record->phase == Phase::kPrefilling;
  if (!in_time || record->attempt->decode != from) {
    ++totals_.stale;
    return;
  }
  Status bad = check_run(*record, run);
  const uint32_t before = record->log.size();
  if (bad.ok()) switch (record->log.append(run.position, run.ids)) {
      case TokenLog::Verdict::kAppended:
        break;
      case TokenLog::Verdict::kRepeat:
        totals_.repeats += run.ids.empty() ? 0 : 1;
        break;
      case TokenLog::Verdict::kGap:
        ++totals_.gaps;
        bad = error(Errc::kInternal, "left out tokens from position " + std::to_string(before));
        break;
      case TokenLog::Verdict::kConflict:
        ++totals_.conflicts;
        bad = error(Errc::kInternal,
                    "contradicts a token at or after position " + std::to_string(run.position));
        break;
    }
  if (!bad.ok()) {
    bad.message = title(from) + " " + bad.message;
    return attempt_failed(*record, {from}, std::move(bad));
  }
  // Tokens imply that the commit was verified, should Owned have been lost.
  if (record->phase == Phase::kPrefilling)
    handle(from, to_coordinator::Owned{run.transfer, run.attempt});
  const uint32_t grown = record->log.size() - before;
  totals_.tokens += grown;
  if (grown > 0) {
    if (!record->first_token) {
      record->first_token = strand_->now();
      record->cached_tokens = run.cached_tokens;
    }
    prefill_over(*record);
    record->attempt->since = strand_->now();
    record->attempt->on_decode.context_tokens += grown;
    registry_.find(from)->load.context_tokens += grown;
  }
  if (run.finish != Finish::kNone) return run_finished(*record, run);
  deliver(*record);
}

void Dispatcher::run_finished(Record& record, const to_coordinator::TokenRun& run) {
  if (run.finish == Finish::kStop || run.finish == Finish::kLength) {
    record.kv = run.kv;
    record.cached_tokens = std::max(record.cached_tokens, run.cached_tokens);
    return finish(record, run.finish, {});
  }
  Status why = run.status;
  if (why.ok()) why = error(Errc::kInternal, "ended the answer without a reason");
  why.message = title(record.attempt->decode) + ": " + why.message;
  attempt_failed(record, {record.attempt->decode}, std::move(why));
}

void Dispatcher::handle(WorkerId from, to_coordinator::Quiesced m) {
  auto it = closing_.find(m.transfer);
  if (it == closing_.end() || it->second.attempt != m.attempt) return;
  std::erase(it->second.open, from);
  if (it->second.open.empty()) closing_.erase(it);
}

}  // namespace headrace::coordinator

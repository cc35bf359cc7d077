// Who gets a request, what it is told, and what follows when that fails.
#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace headrace::coordinator {
namespace {

uint32_t blocks_for(uint64_t tokens, uint32_t block_tokens) {
  return static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

Duration backoff(int failures) {
  Duration delay = kBackoffMin;
  for (int i = 1; i < failures && delay < kBackoffMax; ++i) delay *= 2;
  return std::min(delay, kBackoffMax);
}

// The prompt of an attempt: of the answer, what was logged when it began.
std::vector<Token> attempt_tokens(const RequestRecord& record) {
  std::vector<Token> tokens = record.prompt;
  const auto logged = record.log.tokens().begin();
  tokens.insert(tokens.end(), logged, logged + record.attempt->base);
  if (record.attempt->base > 0 && planted(Mistake::kReplayWithoutLast)) tokens.pop_back();
  return tokens;
}

}  // namespace

// The one function that assigns work. Each rank in order of arrival: nothing overtakes a large
// request.
void Dispatcher::place() {
  if (placing_ || !text_ || !registry_.card()) return;
  had_route_ = had_route_ || registry_.decoders() > 0;
  placing_ = true;
  const Instant now = strand_->now();
  for (;;) {
    const Rank first = queue_.turn();
    const Turn turn = place_from(first, now);
    if (turn == Turn::kNoRoom) break;  // the room that comes next is for it
    if (turn != Turn::kPlaced && place_from(other(first), now) != Turn::kPlaced) break;
  }
  placing_ = false;
}

Dispatcher::Turn Dispatcher::place_from(Rank rank, Instant now) {
  const bool shared = rank == Rank::kStranger && known_active();
  Queue& line = queue_.line(rank);
  for (auto it = line.begin(); it != line.end();) {
    Record& record = **it++;  // what follows may take the record out of the line
    if (record.not_before > now) continue;
    if (!record.tokenized) break;
    if (Status status = fit(record); !status.ok()) {
      finish(record, Finish::kError, std::move(status));
      continue;
    }
    const bool suspect = record.deaths > 0;
    if (const std::optional<Route> chosen = choose(record, now, suspect, shared)) {
      line.remove(&record);
      queue_.placed(rank);
      dispatch(record, *chosen, now);
      return Turn::kPlaced;
    }
    // One that only waits for another suspect's first token holds up nobody else.
    if (suspect && choose(record, now, false, shared)) continue;
    return shared && choose(record, now, suspect, false) ? Turn::kNoShare : Turn::kNoRoom;
  }
  return Turn::kNobody;
}

std::vector<WorkerView> Dispatcher::views(const Record& record, Instant now) const {
  const uint32_t block_tokens = registry_.card()->block_tokens;
  const uint64_t before_last = record.prompt.size() + record.log.size() - 1;
  const std::span<const uint64_t> chain(
      record.chain.data(), std::min<size_t>(record.chain.size(), before_last / block_tokens));
  std::vector<WorkerView> out;
  for (const auto& [id, worker] : registry_) {
    if (!worker.serves()) continue;
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
    v.cached_tokens = uint64_t{prefix_.match(id, chain)} * block_tokens;
    v.busy_with_suspect = worker.load.unproven > 0;
    v.strangers = worker.load.strangers;
    v.time = {worker.hello.limits, worker.hello.card.cost, worker.beat.correction};
    out.push_back(std::move(v));
  }
  return out;
}

std::optional<Route> Dispatcher::choose(const Record& record, Instant now, bool suspect,
                                        bool shared) const {
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
  request.suspect = suspect;
  request.stranger = shared;
  request.avoid = record.avoid;
  request.sick = pairs_.sick(now);
  request.links = &links_;
  request.now = now;
  return route(request, views(record, now));
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
  if (planted(Mistake::kTokensOfOldAttempt))
    attempt.transfer = {record.submit.request.hi, record.submit.request.lo};
  attempt.decode = chosen.decode;
  attempt.prefill = chosen.prefill;
  attempt.base = record.log.size();
  attempt.prompt = static_cast<uint32_t>(record.prompt.size()) + attempt.base;
  const TransferId transfer = attempt.transfer;
  record.attempt = std::move(attempt);
  if (!record.dispatched) {
    record.dispatched = now;
    probes().stage("queue", std::chrono::duration<double>(now - record.admitted).count());
  }
  attempts_.emplace(transfer, &record);
  links_.served(chosen.first_token);
  if (chosen.prefill) links_.handed({*chosen.prefill, chosen.decode}, chosen.extra, now);
  ++totals_.attempts;
  probes().routed(chosen.reason, static_cast<uint32_t>(chosen.cached_tokens));
  book(record, chosen.cached_tokens);
  enter(record, chosen.prefill ? Phase::kGranting : Phase::kDecoding);
  send_prepare(record);
}

// Equal each time it is sent for one attempt.
void Dispatcher::send_prepare(Record& record) {
  const AttemptRecord& attempt = *record.attempt;
  to_worker::Prepare m;
  m.term = options_.term;
  m.worker = registry_.find(attempt.decode)->hello.incarnation;
  m.request = record.submit.request;
  m.transfer = attempt.transfer;
  m.attempt = attempt.attempt;
  m.prompt = attempt_tokens(record);
  m.generated = attempt.base;
  m.max_tokens = record.max_tokens - attempt.base;
  m.sampling = record.sampling;
  if (!record.submit.ignore_eos) m.end_tokens = text_->end_tokens();
  m.end_tokens.insert(m.end_tokens.end(), record.submit.stop_tokens.begin(),
                      record.submit.stop_tokens.end());
  if (attempt.base > 0 && planted(Mistake::kReplayWithoutEnd)) m.end_tokens.clear();
  m.remote_prefill = attempt.prefill.has_value();
  m.kv_digest = record.submit.kv_digest;
  m.deadline = record.admitted + record.submit.deadline - strand_->now();
  m.cache_salt = record.salt;
  tell_worker(attempt.decode, std::move(m));
}

void Dispatcher::send_start(Record& record) {
  const AttemptRecord& attempt = *record.attempt;
  to_worker::Start start;
  start.term = options_.term;
  start.worker = registry_.find(*attempt.prefill)->hello.incarnation;
  start.request = record.submit.request;
  start.transfer = attempt.transfer;
  start.attempt = attempt.attempt;
  start.tokens = attempt_tokens(record);
  start.tokens.pop_back();
  start.grant = attempt.grant;
  start.deadline = record.admitted + record.submit.deadline - strand_->now();
  start.cache_salt = record.salt;
  tell_worker(*attempt.prefill, std::move(start));
}

void Dispatcher::enter(Record& record, Phase phase) {
  record.phase = phase;
  record.attempt->since = strand_->now();
  record.attempt->patience = {};
}

// Reserves on the workers what the attempt will use there.
void Dispatcher::book(Record& record, uint64_t cached) {
  AttemptRecord& attempt = *record.attempt;
  const uint32_t block_tokens = registry_.card()->block_tokens;
  const uint32_t left = record.max_tokens - record.log.size();
  attempt.on_decode.decodes = 1;
  attempt.on_decode.context_tokens = attempt.prompt;
  attempt.on_decode.blocks =
      blocks_for(attempt.prompt + std::min(left, kGrowthReserve), block_tokens);
  Workload& prefilling = attempt.prefill ? attempt.on_prefill : attempt.on_decode;
  prefilling.prefills = 1;
  prefilling.prefill_tokens = attempt.prompt - std::min<uint64_t>(cached, attempt.prompt - 1);
  attempt.on_decode.unproven = record.deaths > 0 ? 1 : 0;
  attempt.on_decode.strangers = record.rank == Rank::kStranger ? 1 : 0;
  if (attempt.prefill) {
    attempt.on_prefill.unproven = attempt.on_decode.unproven;
    attempt.on_prefill.strangers = attempt.on_decode.strangers;
  }
  registry_.find(attempt.decode)->load += attempt.on_decode;
  if (attempt.prefill) registry_.find(*attempt.prefill)->load += attempt.on_prefill;
}

void Dispatcher::release(WorkerId id, Workload& share) {
  WorkerRecord* worker = registry_.find(id);
  if (worker && !planted(Mistake::kBookingKept)) worker->load -= share;
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

void Dispatcher::proven(Record& record) {
  AttemptRecord& attempt = *record.attempt;
  record.deaths = 0;
  record.died_at = 0;
  Workload part;
  part.unproven = std::exchange(attempt.on_decode.unproven, 0);
  release(attempt.decode, part);
}

void Dispatcher::forget_grant(Record& record) {
  AttemptRecord& attempt = *record.attempt;
  if (WorkerRecord* worker = registry_.find(attempt.decode))
    for (const BlockRef& block : attempt.grant.blocks) worker->granted.erase(block_key(block));
  attempt.grant.blocks.clear();
}

std::vector<WorkerId> Dispatcher::sides(const AttemptRecord& attempt) const {
  std::vector<WorkerId> out = {attempt.decode};
  if (attempt.prefill) out.push_back(*attempt.prefill);
  return out;
}

void Dispatcher::close_attempt(Record& record, const Status& why) {
  forget_grant(record);
  AttemptRecord& attempt = *record.attempt;
  const Instant now = strand_->now();
  Closing closing{attempt.attempt, {}, now, now};
  for (const WorkerId id : sides(attempt)) {
    if (!registry_.find(id)) continue;
    tell_worker(id, to_worker::Cancel{options_.term, attempt.transfer, attempt.attempt, why});
    closing.open.push_back(id);
  }
  if (!closing.open.empty()) {
    if (closing_.size() >= kClosingMax) {
      closing_.erase(closing_.begin());
      ++totals_.closing_lost;
    }
    closing_.emplace(attempt.transfer, std::move(closing));
  }
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
  wait_in_line(record, true);
}

void Dispatcher::attempt_failed(Record& record, const std::vector<WorkerId>& culprits, Status why,
                                bool excused) {
  if (ran_out(record)) return run_out(record);
  ++totals_.attempts_failed;
  note_failed(record, culprits, why);
  probes().attempt_failed(why.code);
  close_attempt(record, why);
  // Only the last word was lost, not a token.
  if (record.log.size() == record.max_tokens) return finish(record, Finish::kLength, {});
  for (const WorkerId id : culprits) {
    if (std::find(record.avoid.begin(), record.avoid.end(), id) == record.avoid.end())
      record.avoid.push_back(id);
    const WorkerRecord* worker = registry_.find(id);
    excused = excused || (why.code == Errc::kUnavailable && worker && worker->draining());
  }
  if (!excused) {
    ++record.failures;
    ++record.failures_all;
  }
  const bool in_a_row = record.failures >= kAttemptsMax;
  const bool enough = in_a_row || record.failures_all >= kFailuresMax;
  if (enough && !is_final(why.code))
    why.message = "failed " + std::to_string(in_a_row ? kAttemptsMax : kFailuresMax) +
                  (in_a_row ? " times without a new token" : " times in all") +
                  ", its limit; at last: " + why.message;
  if (enough || is_final(why.code)) return finish(record, Finish::kError, std::move(why));
  // The first replay starts at once: whoever failed is avoided.
  const Duration delay = record.failures <= 1 ? Duration{0} : backoff(record.failures);
  requeue(record, strand_->now() + delay);
  place();
}

void Dispatcher::tell_worker(WorkerId id, ToWorker message) {
  mesh_.tell(SendToWorker{id, std::move(message)});
}

}  // namespace headrace::coordinator

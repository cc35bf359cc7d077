#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/limits.h"

namespace headrace::coordinator {
namespace {

std::string in_seconds(Duration d) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

Status late(const std::string& who, const std::string& what, Duration limit) {
  return error(Errc::kDeadline, who + " " + what + " within " + in_seconds(limit));
}

}  // namespace

std::string Dispatcher::title(WorkerId id) const {
  const WorkerRecord* worker = registry_.find(id);
  return "worker " +
         (worker && !worker->hello.name.empty() ? worker->hello.name : std::to_string(raw(id)));
}

void Dispatcher::on(WorkerJoined joined) {
  // The same process over a fresh link: the old link is dead, whether or not it knows.
  if (const WorkerRecord* old = registry_.find(joined.hello.incarnation)) {
    const WorkerId id = old->id;
    mesh_.tell(DropWorker{id});
    lose(id, error(Errc::kStale, "it registered again"));
  }
  Status status = registry_.admit(joined.worker, joined.hello, strand_->now());
  if (!status.ok()) {
    tell_worker(joined.worker, to_worker::Rejected{std::move(status)});
    mesh_.tell(DropWorker{joined.worker});
    return;
  }
  serve_model(joined.hello.card);
  tell_worker(joined.worker, to_worker::Welcome{options_.term, joined.worker, kBeatEvery});
  had_decoder_ = had_decoder_ || joined.hello.role != Role::kPrefill;
  fetch_tokenizer();
  place();
}

// After all workers left, others may come with another model. What was tokenized for the old one
// cannot go on.
void Dispatcher::serve_model(const ModelCard& card) {
  if (served_ && *served_ != card) {
    std::vector<Record*> foreign;
    for (const auto& [id, record] : requests_)
      if (record->tokenized && record->phase != Phase::kDraining) foreign.push_back(record.get());
    placing_ = true;  // nothing of the old model may go to the new workers meanwhile
    for (Record* record : foreign)
      finish(*record, Finish::kError,
             error(Errc::kUnavailable, "the cluster now serves another model: " + card.name));
    placing_ = false;
  }
  served_ = card;
  if (text_digest_ == card.tokenizer) return;
  text_digest_ = card.tokenizer;
  text_ = nullptr;
  text_error_ = {};
  fetch_.reset();
}

void Dispatcher::on(FromWorker message) {
  WorkerRecord* worker = registry_.find(message.worker);
  if (!worker) {
    ++totals_.stale;
    return;
  }
  worker->heard = strand_->now();
  std::visit([&](auto& m) { handle(message.worker, std::move(m)); }, message.message);
}

void Dispatcher::on(WorkerLost lost) { lose(lost.worker, lost.why); }

void Dispatcher::lose(WorkerId id, const Status& why) {
  const WorkerRecord* worker = registry_.find(id);
  if (!worker) return;
  ++totals_.workers_lost;
  const std::string what = title(id) + " was lost: " + why.message;
  registry_.remove(id);
  if (registry_.decoders() == 0) decoders_gone_ = strand_->now();
  for (auto it = closing_.begin(); it != closing_.end();) {
    std::erase(it->second.open, id);
    it = it->second.open.empty() ? closing_.erase(it) : std::next(it);
  }
  if (fetch_ && fetch_->worker() == id) drop_fetch(error(Errc::kDisconnected, what));
  std::vector<Record*> hit;
  for (const auto& [transfer, record] : attempts_) {
    const AttemptRecord& attempt = *record->attempt;
    const bool prefilling = record->phase != Phase::kDecoding && !attempt.prefill_done;
    if (attempt.decode == id || (attempt.prefill == id && prefilling)) hit.push_back(record);
  }
  for (Record* record : hit) attempt_failed(*record, {id}, error(Errc::kDisconnected, what));
}

void Dispatcher::handle(WorkerId from, to_coordinator::Register m) {
  if (registry_.find(from)->hello.incarnation != m.incarnation) {
    ++totals_.stale;
    return;
  }
  tell_worker(from, to_worker::Welcome{options_.term, from, kBeatEvery});
}

void Dispatcher::handle(WorkerId from, to_coordinator::Beat m) {
  const Instant now = strand_->now();
  if (!registry_.beat(from, m, now)) {
    ++totals_.stale;
    return;
  }
  // It still holds what was cancelled a while ago: say it again.
  for (const TransferId& transfer : m.transfers) {
    auto it = closing_.find(transfer);
    if (it == closing_.end() || now - it->second.since < kBackoffMax) continue;
    it->second.since = now;
    tell_worker(from, to_worker::Cancel{options_.term, transfer, it->second.attempt,
                                        error(Errc::kStale, "this attempt is over")});
  }
}

void Dispatcher::fetch_tokenizer() {
  const Instant now = strand_->now();
  if (text_ || fetch_ || !registry_.card() || !text_error_.ok() || now < fetch_not_before_) return;
  // Another worker each time: begin past the one asked last.
  WorkerId chosen = registry_.begin()->first;
  for (const auto& [id, worker] : registry_)
    if (id > fetch_last_) {
      chosen = id;
      break;
    }
  fetch_last_ = chosen;
  fetch_.emplace(registry_.card()->tokenizer, chosen, now);
  tell_worker(chosen, fetch_->request());
}

void Dispatcher::drop_fetch(const Status& why) {
  fetch_trouble_ = why;
  fetch_.reset();
  fetch_not_before_ = strand_->now() + kBackoffMin;
}

void Dispatcher::handle(WorkerId from, to_coordinator::TokenizerPiece m) {
  if (!fetch_) return;
  switch (fetch_->take_piece(from, m, strand_->now())) {
    case TokenizerFetch::Progress::kIgnored:
      ++totals_.stale;
      return;
    case TokenizerFetch::Progress::kMore:
      return tell_worker(from, fetch_->request());
    case TokenizerFetch::Progress::kBroken:
      return drop_fetch(fetch_->error());
    case TokenizerFetch::Progress::kDone:
      break;
  }
  Result<std::shared_ptr<const TextModel>> made = make_text_(fetch_->bytes());
  fetch_.reset();
  fetch_trouble_ = {};
  if (made)
    text_ = *made;
  else
    text_error_ = made.error();
  place();
}

void Dispatcher::on(BeginSweeps) {
  sweep_due_ = strand_->now();
  sweep();
}

void Dispatcher::sweep() {
  const Instant now = strand_->now();
  // Held up by ourselves, e.g. by a very long prompt: what workers said meanwhile waits behind this
  // task and must not count as silence. It gets its turn first; put off once, not for ever.
  if (const bool late = now - sweep_due_ >= kSweepEvery; late && !std::exchange(put_off_, late)) {
    sweep_timer_ = strand_->after(kSweepPause, [this] { sweep(); });
    return;
  }
  put_off_ = false;
  sweep_workers(now);
  if (fetch_ && fetch_->overdue(now))
    drop_fetch(
        late(title(fetch_->worker()), "sent no piece of the tokenizer", kTokenizerPieceWithin));
  fetch_tokenizer();
  std::vector<RequestId> ids;
  ids.reserve(requests_.size());
  for (const auto& [id, record] : requests_) ids.push_back(id);
  for (const RequestId& id : ids)
    if (auto it = requests_.find(id); it != requests_.end()) sweep_request(*it->second, now);
  std::erase_if(closing_, [&](const auto& c) { return now - c.second.since > kClosingWithin; });
  place();
  ping(now);
  sweep_due_ = now + kSweepEvery;
  sweep_timer_ = strand_->after(kSweepEvery, [this] { sweep(); });
}

void Dispatcher::sweep_workers(Instant now) {
  for (const WorkerId id : registry_.silent(now, kSilence)) {
    mesh_.tell(DropWorker{id});
    lose(id, error(Errc::kDisconnected, "nothing heard for " + in_seconds(kSilence)));
  }
}

void Dispatcher::sweep_request(Record& record, Instant now) {
  if (now - record.admitted > record.submit.deadline && record.phase != Phase::kDraining)
    return finish(record, Finish::kError,
                  late("the answer", "was not complete", record.submit.deadline));
  if (record.phase == Phase::kDraining) {
    if (now - record.touched > kClientStall)
      finish(record, Finish::kCancelled, late("the client", "took no token", kClientStall));
    return;
  }
  if (record.phase == Phase::kQueued) {
    if (Status status = queue_overdue(record, now); !status.ok())
      finish(record, Finish::kError, std::move(status));
    return;
  }
  std::vector<WorkerId> culprits;
  if (Status status = overdue(record, now, culprits); !status.ok())
    attempt_failed(record, culprits, std::move(status));
}

Status Dispatcher::queue_overdue(const Record& record, Instant now) const {
  if (!text_ && !text_error_.ok()) return error(Errc::kUnavailable, not_ready());
  if (had_decoder_ && registry_.decoders() == 0 &&
      now - std::max(decoders_gone_, record.queued) > kNoWorkerWait)
    return error(Errc::kUnavailable, "no worker that decodes is left");
  if (now - record.queued <= kQueueWait) return {};
  const std::string why = not_ready();
  if (!why.empty()) return error(Errc::kUnavailable, why);
  return error(Errc::kOverloaded,
               "waited " + in_seconds(kQueueWait) + " in the queue, its limit: no worker has room");
}

// No step has ended for too long, though there was something to do since `since`.
bool Dispatcher::stuck(WorkerId id, Instant since, Instant now) const {
  const WorkerRecord* worker = registry_.find(id);
  return worker && now - std::max(since, worker->progressed) > step_patience(*worker);
}

Status Dispatcher::overdue(const Record& record, Instant now, std::vector<WorkerId>& culprits) {
  const AttemptRecord& attempt = *record.attempt;
  const Duration waited = now - attempt.since;
  if (record.phase == Phase::kGranting) {
    culprits = {attempt.decode};
    return waited > kGrantWithin ? late(title(attempt.decode), "did not grant", kGrantWithin)
                                 : Status{};
  }
  if (record.phase == Phase::kPrefilling && attempt.prefill_done) {
    culprits = sides(attempt);
    return waited > kOwnedWithin
               ? late(title(attempt.decode), "did not own what was sent", kOwnedWithin)
               : Status{};
  }
  const WorkerId busy = record.phase == Phase::kPrefilling ? *attempt.prefill : attempt.decode;
  if (!stuck(busy, attempt.since, now)) return {};
  WorkerRecord& worker = *registry_.find(busy);
  const bool has_work = worker.beat.running + worker.beat.waiting > 0;
  const bool knows = std::find(worker.beat.transfers.begin(), worker.beat.transfers.end(),
                               attempt.transfer) != worker.beat.transfers.end();
  // All steps are over and its blocks are still on their way: a slow link, with a limit of its own.
  if (record.phase == Phase::kPrefilling && !has_work && knows && waited <= kStreamingWithin)
    return {};
  worker.stalled = has_work;
  culprits = {busy};
  return late(title(busy), "made no progress", step_patience(worker));
}

// Workers keep the leases of the transfers that are named.
void Dispatcher::ping(Instant now) {
  if (now < next_ping_) return;
  next_ping_ = now + kBeatEvery;
  std::map<WorkerId, std::vector<TransferId>> live;
  for (const auto& [id, worker] : registry_) live[id];
  for (const auto& [transfer, record] : attempts_)
    for (const WorkerId id : sides(*record->attempt))
      if (auto it = live.find(id); it != live.end()) it->second.push_back(transfer);
  for (const auto& [id, transfers] : live) {
    size_t at = 0;
    do {  // as many as a message may name
      const size_t until = std::min(transfers.size(), at + limits::kTransfers);
      const auto begin = transfers.begin();
      tell_worker(id, to_worker::Ping{options_.term,
                                      {begin + static_cast<std::ptrdiff_t>(at),
                                       begin + static_cast<std::ptrdiff_t>(until)}});
      at = until;
    } while (at < transfers.size());
  }
}

}  // namespace headrace::coordinator

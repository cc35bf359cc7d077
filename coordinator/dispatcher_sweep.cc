// What happens by itself: deadlines, silence, what was lost on the way.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/limits.h"
#include "protocol/planted.h"

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
  sweep_requests(now);
  sweep_closing(now);
  sweep_drain(now);
  poison_.sweep(now);
  place();
  ping(now);
  note_ready();
  events_.sweep(now);
  if (watched_) show(make_status());
  sweep_due_ = now + kSweepEvery;
  if (planted(Mistake::kSweepsOnce)) return;
  sweep_timer_ = strand_->after(kSweepEvery, [this] { sweep(); });
}

void Dispatcher::sweep_workers(Instant now) {
  const auto drop = [&](WorkerId id, const std::string& why) {
    mesh_.tell(DropWorker{id});
    lose(id, error(Errc::kDisconnected, why), false);
  };
  for (const WorkerId id : registry_.silent(now, kSilence))
    drop(id, "nothing heard for " + in_seconds(kSilence));
  for (const WorkerId id : registry_.deaf(now, kPingWithin))
    drop(id, "it did not answer within " + in_seconds(kPingWithin));
}

void Dispatcher::sweep_requests(Instant now) {
  std::vector<RequestId> ids;
  ids.reserve(requests_.size());
  for (const auto& [id, record] : requests_) ids.push_back(id);
  for (const RequestId& id : ids)
    if (auto it = requests_.find(id); it != requests_.end()) sweep_request(*it->second, now);
}

void Dispatcher::sweep_request(Record& record, Instant now) {
  if (ran_out(record)) return run_out(record);
  if (!record.attempt) return sweep_idle(record, now);
  if (record.detached && now - *record.detached > kResumeWithin)
    return finish(record, Finish::kCancelled,
                  late("the client", "did not come back", kResumeWithin));
  const bool granting = record.phase == Phase::kGranting;
  if (granting && !record.attempt->asked_again && now - record.attempt->since > kGrantWithin / 2) {
    record.attempt->asked_again = true;
    tell_again(record, record.attempt->decode);
  }
  std::vector<WorkerId> culprits;
  if (Status status = overdue(record, now, culprits); !status.ok()) {
    if (record.phase == Phase::kPrefilling && record.attempt->prefill_done)
      pairs_.failed({*record.attempt->prefill, record.attempt->decode}, now);
    attempt_failed(record, culprits, std::move(status));
  }
}

bool Dispatcher::ran_out(const Record& record) const {
  return !record.ended && !planted(Mistake::kDeadlineForgotten) &&
         strand_->now() - record.admitted >= record.submit.deadline;
}

void Dispatcher::run_out(Record& record) {
  finish(record, Finish::kError, late("the answer", "was not complete", record.submit.deadline));
}

void Dispatcher::sweep_idle(Record& record, Instant now) {
  switch (record.phase) {
    case Phase::kRetained:
      if (now - record.over > kRetainedFor) erase(record);
      return;
    case Phase::kDraining:
    case Phase::kParked:
      if (!record.detached && now - record.touched > kClientStall)
        return finish(record, Finish::kCancelled,
                      late("the client", "took no token", kClientStall));
      break;
    case Phase::kQueued:
      if (Status status = queue_overdue(record, now); !status.ok())
        return finish(record, Finish::kError, std::move(status));
      break;
    default:
      CHECK(false);
  }
  if (record.detached && now - *record.detached > kResumeWithin)
    finish(record, Finish::kCancelled, late("the client", "did not come back", kResumeWithin));
}

// Until it is answered: the Cancel may be lost, or come before the Prepare that it ends.
void Dispatcher::sweep_closing(Instant now) {
  size_t told = 0;
  for (auto& [transfer, closing] : closing_) {
    if (now - closing.told < kTellAgain || told >= kTellAgainMax) continue;
    closing.told = now;
    for (const WorkerId id : closing.open) {
      ++told;
      ++totals_.told_again;
      tell_worker(id, to_worker::Cancel{options_.term, transfer, closing.attempt,
                                        error(Errc::kStale, "this attempt is over")});
    }
  }
  totals_.closing_lost +=
      std::erase_if(closing_, [&](const auto& c) { return now - c.second.begun > kClosingWithin; });
}

// A worker names in its beats all that it holds. What it should hold and does not name was lost on
// the way, there or back; told again it begins it, or repeats its last word.
void Dispatcher::check_held(WorkerId from, const to_coordinator::Beat& beat) {
  if (beat.transfers.size() >= limits::kTransfers) return;  // it cannot name them all
  const std::unordered_set<TransferId> named(beat.transfers.begin(), beat.transfers.end());
  std::vector<Record*> again, lost;
  for (const auto& [transfer, record] : attempts_) {
    AttemptRecord& attempt = *record->attempt;
    if (record->phase == Phase::kGranting) continue;  // has a deadline of its own, shorter
    const bool prefills =
        attempt.prefill == from && record->phase == Phase::kPrefilling && !attempt.prefill_done;
    if (attempt.decode != from && !prefills) continue;
    AttemptSide& side = prefills ? attempt.at_prefill : attempt.at_decode;
    if (named.contains(transfer)) {
      side = {};
    } else if (++side.missing >= kBeatsMissing) {
      side.missing = 0;
      (++side.repeats > kRepeatsMax ? lost : again).push_back(record);
    }
  }
  for (Record* record : again) tell_again(*record, from);
  for (Record* record : lost)
    attempt_failed(*record, {from}, error(Errc::kStale, title(from) + " knows nothing of it"));
}

void Dispatcher::tell_again(Record& record, WorkerId worker) {
  ++totals_.told_again;
  if (record.attempt->decode == worker)
    send_prepare(record);
  else
    send_start(record);
}

Status Dispatcher::queue_overdue(const Record& record, Instant now) const {
  if (Status none = no_route(); !none.ok()) return none;
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

// Steps end there, and none of them brings this request forward. Its worker cannot say so by
// itself: from outside it looks as if it had much to do.
Status Dispatcher::starved(Record& record, Instant now, std::vector<WorkerId>& culprits) {
  AttemptRecord& attempt = *record.attempt;
  const bool prefilling = record.phase == Phase::kPrefilling;
  const WorkerId busy = prefilling ? *attempt.prefill : attempt.decode;
  const WorkerRecord* worker = registry_.find(busy);
  if (!worker) return {};
  // The longest one: of prompts that were booked before, time has passed.
  attempt.patience = std::max(attempt.patience, starvation_patience(*worker) +
                                                    (prefilling ? kStreamingWithin : Duration{0}));
  const Instant alone = std::max(attempt.since, worker->crowded);
  const bool crowded = worker->crowded > attempt.since;
  if (now - alone <= attempt.patience &&
      (!crowded || now - attempt.since <= attempt.patience + kCrowdedWithin))
    return {};
  culprits = {busy};
  return error(Errc::kDeadline, title(busy) + " ended steps, but for " +
                                    in_seconds(now - attempt.since) +
                                    " none with a token of this request; " +
                                    in_seconds(attempt.patience) + " are borne with");
}

Status Dispatcher::overdue(Record& record, Instant now, std::vector<WorkerId>& culprits) {
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
  if (!stuck(busy, attempt.since, now)) return starved(record, now, culprits);
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
    const uint64_t number = registry_.pinged(id, now);
    do {  // as many as a message may name
      const size_t until = std::min(transfers.size(), at + limits::kTransfers);
      const auto begin = transfers.begin();
      tell_worker(id, to_worker::Ping{options_.term,
                                      {begin + static_cast<std::ptrdiff_t>(at),
                                       begin + static_cast<std::ptrdiff_t>(until)},
                                      prefix_.seen(id),
                                      number});
      at = until;
    } while (at < transfers.size());
  }
}

}  // namespace headrace::coordinator

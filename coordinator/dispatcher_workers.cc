// Who lives: joining, beats, loss; and the tokenizer, which comes from them.
#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace headrace::coordinator {
namespace {

// For Probes::worker_lost.
std::string_view how_lost(const Status& why, bool died, bool leaving) {
  if (leaving) return "drained";
  if (why.code == Errc::kInvalid) return "rule";
  return why.code == Errc::kDisconnected && !died ? "silent" : "disconnected";
}

}  // namespace

std::string Dispatcher::title(WorkerId id) const {
  const WorkerRecord* worker = registry_.find(id);
  if (!worker && id == lost_) return lost_title_;
  return "worker " + (worker ? worker->hello.name : std::to_string(raw(id)));
}

void Dispatcher::on(WorkerJoined joined) {
  // The same process over a fresh link: the old link is dead, whether or not it knows.
  if (const WorkerRecord* old = registry_.find(joined.hello.incarnation)) {
    const WorkerId id = old->id;
    mesh_.tell(DropWorker{id});
    lose(id, error(Errc::kStale, "it registered again"), false);
  }
  if (!free_name(joined.hello)) {  // not told why: it comes again, and by then it is known
    mesh_.tell(DropWorker{joined.worker});
    return;
  }
  Status status = registry_.admit(joined.worker, joined.hello, strand_->now());
  if (!status.ok()) {
    note(Event::kRefused, "a worker was refused (name '" + joined.hello.name + "', process " +
                              std::to_string(joined.hello.pid) + "): " + status.message);
    tell_worker(joined.worker, to_worker::Rejected{std::move(status)});
    mesh_.tell(DropWorker{joined.worker});
    return;
  }
  note(Event::kJoined, title(joined.worker) + " (" + name(joined.hello.role) +
                           ") joined as number " + std::to_string(raw(joined.worker)) +
                           ": process " + std::to_string(joined.hello.pid) + ", " +
                           joined.hello.device + ", " + std::to_string(joined.hello.kv_blocks) +
                           " KV blocks");
  serve_model(joined.hello.card);
  prefix_.join(joined.worker, joined.hello.kv_blocks);
  tell_worker(joined.worker,
              to_worker::Welcome{options_.term, joined.worker, kBeatEvery, cache_key_});
  fetch_tokenizer();
  encode_waiting();
  place();
}

bool Dispatcher::free_name(const to_coordinator::Register& hello) {
  const WorkerRecord* other = registry_.namesake(hello);
  if (!other || other->hello.card != hello.card) return true;
  WorkerRecord& old = *registry_.find(other->id);
  const WorkerId id = old.id;
  const Instant now = strand_->now();
  // Each link has an incarnation of its own: all else equal, it is the same process once more.
  to_coordinator::Register before = old.hello;
  before.incarnation = hello.incarnation;
  const bool again = before == hello;
  if (again || now - old.heard > kNameHeld) {
    mesh_.tell(DropWorker{id});
    lose(id, error(Errc::kStale, again ? "it registered again" : "another process took its name"),
         false);
    return true;
  }
  if (!old.rival || now - *old.rival > kNameRival) {
    old.rival = now;
    old.rival_pings = old.pings;
  }
  // What it said before may come late; only an answer to what was asked since shows that it lives.
  return old.heard - *old.rival > kNameHeld && old.beat.ping_seen > old.rival_pings;
}

// After all workers left, others may come with another model. What was tokenized for the old one
// cannot go on.
void Dispatcher::serve_model(const ModelCard& card) {
  if (served_ && *served_ != card) {
    std::vector<Record*> foreign;
    for (const auto& [id, record] : requests_)
      if (record->tokenized && !record->ended) foreign.push_back(record.get());
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

void Dispatcher::on(WorkerLost lost) {
  lose(lost.worker, lost.why, lost.why.code == Errc::kDisconnected);
}

void Dispatcher::lose(WorkerId id, const Status& why, bool died) {
  const WorkerRecord* worker = registry_.find(id);
  if (!worker) return;
  const bool leaving = worker->draining();
  if (!leaving) ++totals_.workers_lost;
  probes().worker_lost(id, how_lost(why, died, leaving));
  const std::string what =
      title(id) + (leaving ? " drained and left: " : " was lost: ") + why.message;
  const bool decoded = worker->hello.role != Role::kPrefill;
  const Instant now = strand_->now();
  const Duration silent = now - worker->heard;
  const bool open = decoded && !leaving;
  lost_title_ = title(id);
  lost_ = id;
  registry_.remove(id);
  prefix_.forget(id);
  pairs_.forget(id);
  links_.forget(id);
  if (died && !leaving) poison_.worker_died(now);
  if (decoded && registry_.decoders() == 0) {
    decoders_gone_ = now;
    decoders_gone_why_ = what;
  }
  if (open && registry_.open_decoders() == 0) decoders_closed_ = now;
  for (auto it = closing_.begin(); it != closing_.end();) {
    std::erase(it->second.open, id);
    it = it->second.open.empty() ? closing_.erase(it) : std::next(it);
  }
  if (fetch_ && fetch_->worker() == id) drop_fetch(error(Errc::kDisconnected, what));
  std::vector<Record*> hit, poison;
  for (const auto& [transfer, record] : attempts_) {
    const AttemptRecord& attempt = *record->attempt;
    const bool prefilling = record->phase != Phase::kDecoding && !attempt.prefill_done;
    if (planted(Mistake::kDeathIgnored)) continue;
    if (attempt.decode != id && !(attempt.prefill == id && prefilling)) continue;
    const bool computed =
        record->phase == (attempt.decode == id ? Phase::kDecoding : Phase::kPrefilling);
    const bool cause = died && !leaving && computed && blame(*record, now);
    (cause ? poison : hit).push_back(record);
  }
  note(Event::kLost, what + "; last word " + std::to_string(silent / 1ms) + " ms ago, " +
                         std::to_string(hit.size() + poison.size()) + " requests there");
  for (Record* record : poison) {
    ++totals_.poisoned;
    note_failed(*record, {},
                error(Errc::kInternal, "several workers died of it; its prompt is barred"));
    poison_.bar(prompt_digest(record->prompt), now);
    finish(*record, Finish::kError,
           error(Errc::kInternal, std::to_string(kDeathsMax) +
                                      " workers died while they computed this request: it is not "
                                      "tried again, its prompt is refused for some minutes"));
  }
  for (Record* record : hit)
    attempt_failed(*record, {id}, error(Errc::kDisconnected, what), leaving);
}

bool Dispatcher::blame(Record& record, Instant now) {
  if (record.deaths++ == 0) record.died_at = record.log.size();
  return record.deaths >= kDeathsMax && poison_.deaths(now) <= static_cast<size_t>(kDeathsMax);
}

void Dispatcher::handle(WorkerId from, to_coordinator::Register m) {
  if (registry_.find(from)->hello.incarnation != m.incarnation) {
    // One link is one process; this one breaks the rule.
    ++totals_.stale;
    mesh_.tell(DropWorker{from});
    return lose(from, error(Errc::kInvalid, "it registered as another process"), false);
  }
  tell_worker(from, to_worker::Welcome{options_.term, from, kBeatEvery, cache_key_});
}

void Dispatcher::handle(WorkerId from, to_coordinator::Beat m) {
  const bool fresh = m.steps >= registry_.find(from)->beat.steps;
  const bool drained = registry_.find(from)->draining();
  if (!registry_.beat(from, m, strand_->now())) {
    ++totals_.stale;
    return;
  }
  const WorkerRecord& worker = *registry_.find(from);
  if (!drained && worker.draining()) {
    note(Event::kDrain, title(from) + " drains: it takes nothing new, and leaves");
    if (worker.hello.role != Role::kPrefill && registry_.open_decoders() == 0)
      decoders_closed_ = strand_->now();
  }
  if (!prefix_.take(from, m.prefix_from, m.prefix_events)) ++totals_.prefix_gaps;
  if (fresh) check_held(from, m);
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
  encode_waiting();
  place();
}

}  // namespace headrace::coordinator

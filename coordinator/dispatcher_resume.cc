// Clients that leave and come back, and the end of the coordinator itself.
#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/limits.h"
#include "protocol/planted.h"

namespace headrace::coordinator {
namespace {

// Memory that an ended request holds.
size_t weight(const RequestRecord& record) {
  size_t bytes = sizeof(RequestRecord) + record.log.size() * sizeof(Token);
  if (record.text) bytes += record.text->bytes();
  for (const Logprobs& one : record.logprobs)
    bytes += sizeof one + one.top.size() * sizeof(TokenLogprob);
  return bytes;
}

}  // namespace

void Dispatcher::on(Detach detach) {
  auto it = requests_.find(detach.request);
  if (it == requests_.end()) return;
  Record& record = *it->second;
  const bool here = !record.detached && record.phase != Phase::kRetained;
  if (!here || record.owner != detach.owner) return;
  if (!record.ended) {
    probes().client_gone(record.first_token ? "decode" : record.dispatched ? "prefill" : "queue");
  }
  if (!record.submit.resumable)
    return finish(record, Finish::kCancelled, error(Errc::kCancelled, "the client is gone"));
  record.client = {};
  record.detached = strand_->now();
  if (record.ended) retire(record);
}

void Dispatcher::on(Resume resume) {
  auto it = requests_.find(resume.request);
  Record* record = it == requests_.end() ? nullptr : it->second.get();
  if (!record || !record->submit.resumable || resume.next > record->log.size()) {
    Ended ended;
    ended.finish = Finish::kError;
    ended.status = error(Errc::kNotFound,
                         "no such request that can be resumed from there; ids do not outlive the "
                         "coordinator, nor its answers the time they are kept");
    resume.client.tell(std::move(ended));
    return;
  }
  ++totals_.resumed;
  if (record->phase == Phase::kRetained) {
    unretain(*record);
    record->phase = Phase::kDraining;
  } else if (!record->detached) {
    Ended ended;
    ended.finish = Finish::kCancelled;
    ended.status = error(Errc::kCancelled, "taken over by another connection");
    record->client.tell(std::move(ended));
  }
  record->client = std::move(resume.client);
  record->owner = resume.owner;
  record->detached.reset();
  record->touched = strand_->now();
  const bool skips = planted(Mistake::kResumeSkips) && resume.next < record->log.size();
  record->log.rewind(skips ? resume.next + 1 : resume.next);
  unpark(*record);
  deliver(*record);
  place();
}

// The end of one that ran is kept for a Resume; an answer that was made and not fetched is dropped.
void Dispatcher::on(AskCancel ask) {
  auto it = requests_.find(ask.request);
  const bool known = it != requests_.end();
  const bool over = known && it->second->ended;
  const bool found = known && !(over && it->second->ended->finish == Finish::kCancelled);
  if (found && it->second->phase != Phase::kRetained)
    finish(*it->second, Finish::kCancelled, error(Errc::kCancelled, "cancelled by its id"));
  if (found && over)
    if (it = requests_.find(ask.request); it != requests_.end()) erase(*it->second);
  ask.reply.tell(found);
}

uint32_t Dispatcher::behind_max(const Record& record) const {
  if (record.unheard && record.rank == Rank::kStranger && known_active()) {
    const auto crowd = unheard_ + static_cast<uint32_t>(queue_.line(Rank::kStranger).size());
    return std::clamp(kStrangersShared / crowd, 1u, kBehindFirst);
  }
  if (record.unheard) return std::clamp(kBehindShared / unheard_, kBehindLeast, kBehindFirst);
  const uint64_t earned = kBehindFirst + uint64_t{kBehindGrowth} * record.log.acknowledged();
  return static_cast<uint32_t>(std::min<uint64_t>(kBehindMax, earned));
}

void Dispatcher::heard(Record& record) {
  if (std::exchange(record.unheard, false)) --unheard_;
}

// Its client is no stranger any more, for as long as this answer lasts.
void Dispatcher::know(Record& record) {
  heard(record);
  if (record.rank == Rank::kKnown) return;
  const bool waits = record.phase == Phase::kQueued;
  if (waits) queue_.remove(record.rank, &record);
  record.rank = Rank::kKnown;
  if (waits) wait_in_line(record, true);
  if (!record.attempt) return;
  Workload part;
  part.strangers = std::exchange(record.attempt->on_decode.strangers, 0);
  release(record.attempt->decode, part);
}

bool Dispatcher::known_active() const {
  return known_open_ > 0 || (known_last_ && strand_->now() - *known_last_ < kKnownFor);
}

void Dispatcher::wait_in_line(Record& record, bool first) {
  Queue& line = queue_.line(record.rank);
  line.insert(first ? line.begin() : line.end(), &record);
}

// A client that was far behind has come nearer: its answer goes on, from the log.
void Dispatcher::unpark(Record& record) {
  if (record.phase == Phase::kParked && behind(record) <= behind_max(record) / 2)
    requeue(record, strand_->now());
}

void Dispatcher::retire(Record& record) {
  CHECK(record.ended && record.phase == Phase::kDraining);
  if (!record.submit.resumable) return erase(record);
  record.phase = Phase::kRetained;
  record.client = {};
  record.detached = strand_->now();
  record.prompt = {};
  record.chain = {};
  drop_encoding(record);
  retained_.push_back(&record);
  record.retained = weight(record);
  retained_bytes_ += record.retained;
  while (retained_.size() > kRetainedMax || retained_bytes_ > kRetainedBytesMax)
    erase(*retained_.front());
}

void Dispatcher::unretain(Record& record) {
  retained_.remove(&record);
  retained_bytes_ -= record.retained;
}

void Dispatcher::on(BeginDrain drain) {
  const Instant now = strand_->now();
  const Instant until = now + std::clamp<Duration>(drain.grace, Duration{0}, limits::kDuration);
  drain_until_ = std::min(drain_until_.value_or(until), until);
  drain_replies_.push_back(std::move(drain.reply));
  sweep_drain(now);
}

void Dispatcher::sweep_drain(Instant now) {
  if (!draining()) return;
  if (now >= *drain_until_) {
    std::vector<RequestId> ids;
    for (const auto& [id, record] : requests_)
      if (record->phase != Phase::kRetained) ids.push_back(id);
    for (const RequestId& id : ids) {
      drain_cut_ = true;
      if (auto it = requests_.find(id); it != requests_.end())
        finish(*it->second, Finish::kError,
               error(Errc::kUnavailable, "the coordinator is shutting down, its grace is over"));
    }
    // What was told an error and has not fetched what comes before it.
    for (const RequestId& id : ids)
      if (auto it = requests_.find(id);
          it != requests_.end() && it->second->phase == Phase::kDraining)
        break_off(*it->second, Finish::kError, it->second->ended->status);
  }
  if (requests_.size() > retained_.size()) return;
  for (const Ref<ReplyPort<bool>>& reply : std::exchange(drain_replies_, {}))
    reply.tell(!drain_cut_);
}

}  // namespace headrace::coordinator

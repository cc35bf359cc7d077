#include "coordinator/dispatcher.h"

#include <algorithm>
#include <utility>

#include "coordinator/submit_limits.h"
#include "protocol/check.h"
#include "protocol/planted.h"
#include "protocol/prefix_hash.h"

namespace headrace::coordinator {
namespace {

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Dispatcher::Dispatcher(std::shared_ptr<Strand> strand, Random& random, Ref<MeshPort> mesh,
                       TextModelFactory make_text, DispatcherOptions options)
    : strand_(std::move(strand)),
      random_(random),
      mesh_(std::move(mesh)),
      make_text_(std::move(make_text)),
      options_(std::move(options)),
      cache_key_(random_.mint<CacheKey>()),
      events_(options_.log) {
  watched_ = options_.probes != nullptr;
  if (!watched_) options_.probes = std::make_shared<Probes>();
}

Status Dispatcher::check_submit(const Submit& submit) const {
  if (draining()) return error(Errc::kUnavailable, "the coordinator is shutting down");
  if (requests_.contains(submit.request))
    return error(Errc::kInvalid,
                 "request: this id is known already; resume it, or take another id");
  const uint32_t vocab = registry_.card() ? registry_.card()->vocab : UINT32_MAX;
  if (Status status = check_submit_fields(submit, vocab); !status.ok()) return status;
  if (queue_.full(submit.known ? Rank::kKnown : Rank::kStranger))
    return error(Errc::kOverloaded,
                 "the queue holds " + std::to_string(kQueueMax) + " requests, its limit");
  if (Status status = no_route(); !status.ok()) return status;
  if (Status status = all_drain(); !status.ok()) return status;
  return text_room(prompt_bytes(submit.prompt));
}

Status Dispatcher::no_route() const {
  const bool too_early = !had_route_ && !options_.waits_for_first;
  if (too_early || (!text_ && !text_error_.ok())) return error(Errc::kUnavailable, not_ready());
  if (had_route_ && registry_.decoders() == 0 && strand_->now() - decoders_gone_ > kNoWorkerWait)
    return error(Errc::kUnavailable, gone());
  return {};
}

Status Dispatcher::all_drain() const {
  const bool closed = registry_.decoders() > 0 && registry_.open_decoders() == 0;
  if (!closed || strand_->now() - decoders_closed_ <= kNoWorkerWait) return {};
  return error(Errc::kUnavailable, not_ready());
}

void Dispatcher::on(Submit submit) {
  ++totals_.submitted;
  if (Status status = check_submit(submit); !status.ok()) {
    ++totals_.refused;
    Ended ended;
    ended.finish = Finish::kError;
    ended.status = std::move(status);
    probes().ended(ended, false);
    submit.client.tell(std::move(ended));
    return;
  }
  auto owned = std::make_unique<Record>();
  Record& record = *owned;
  record.sampling = submit.sampling;
  record.sampling.seed = submit.seed ? *submit.seed : random_.next();
  record.admitted = record.queued = record.touched = strand_->now();
  record.owner = submit.owner;
  record.client = std::move(submit.client);
  record.salt = cache_salt(cache_key_, submit.cache_salt);
  record.encoding.bytes = prompt_bytes(submit.prompt);
  text_waiting_ += record.encoding.bytes;
  record.raw = std::make_shared<const Prompt>(std::move(submit.prompt));
  record.submit = std::move(submit);
  if (record.submit.known) {
    record.rank = Rank::kKnown;
    ++known_open_;
  }
  requests_.emplace(record.submit.request, std::move(owned));
  wait_in_line(record, false);
  // Without a worker there is no card to judge by: it is done once one joins.
  if (text_ && registry_.card()) encode(record);
}

void Dispatcher::on(Acknowledge ack) {
  auto it = requests_.find(ack.request);
  if (it == requests_.end()) return;
  Record& record = *it->second;
  const bool mine = ack.owner == 0 || ack.owner == record.owner;
  if (!mine || record.detached || record.phase == Phase::kRetained) return;
  if (!record.log.acknowledge(ack.position)) {
    // It may be of the one who was taken over.
    if (ack.owner == 0 && record.submit.resumable) return;
    // Beyond what was sent, or going back: the client breaks the protocol.
    return finish(record, Finish::kCancelled,
                  error(Errc::kInvalid, "acknowledged position " + std::to_string(ack.position) +
                                            " was never sent or goes back"));
  }
  record.touched = strand_->now();
  if (ack.position > 0) know(record);
  unpark(record);
  deliver(record);
  place();
}

void Dispatcher::on(Abandon abandon) {
  auto it = requests_.find(abandon.request);
  if (it == requests_.end() || it->second->phase == Phase::kRetained) return;
  Record& record = *it->second;
  if (abandon.owner != 0 && (record.detached || abandon.owner != record.owner)) return;
  finish(record, Finish::kCancelled, error(Errc::kCancelled, "the client gave up"));
}

// Sends what the credit allows; then, if that was all of an answer that is over, its end.
void Dispatcher::deliver(Record& record) {
  if (record.detached) return record.ended ? retire(record) : void();
  if (const auto ids = record.log.sendable(); !ids.empty()) {
    const uint32_t begin = record.log.sent(), end = begin + static_cast<uint32_t>(ids.size());
    Chunk chunk;
    chunk.position = begin;
    chunk.ids.assign(ids.begin(), ids.end());
    chunk.text = record.text->piece(begin, end);
    if (!record.logprobs.empty())
      chunk.logprobs.assign(record.logprobs.begin() + begin, record.logprobs.begin() + end);
    record.log.mark_sent(ids.size());
    record.client.tell(std::move(chunk));
  }
  if (!record.ended || !record.log.all_sent()) return;
  if (planted(Mistake::kEndedTwice)) record.client.tell(Ended(*record.ended));
  record.client.tell(Ended(*record.ended));
  retire(record);
}

void Dispatcher::finish(Record& record, Finish how, Status status) {
  CHECK(record.phase != Phase::kRetained);
  const bool over_before = record.ended.has_value();
  // Whatever ends the request: its workers did nothing wrong.
  if (record.attempt)
    close_attempt(record, status.ok() ? status : error(Errc::kCancelled, status.message));
  if (record.phase == Phase::kQueued) queue_.remove(record.rank, &record);
  record.phase = Phase::kDraining;
  record.touched = strand_->now();
  if (!over_before) write_end(record, how, status);
  if (how == Finish::kCancelled || over_before)
    break_off(record, how, std::move(status));
  else
    deliver(record);
  place();
}

// The terminal record. The text that was held back may be a stop text as a whole.
void Dispatcher::write_end(Record& record, Finish how, const Status& status) {
  const Instant now = strand_->now();
  heard(record);
  if (record.submit.known) {
    --known_open_;
    known_last_ = now;
  }
  if (record.text) record.text->finish();
  if (how == Finish::kLength && record.text && record.text->stopped()) how = Finish::kStop;
  if (how == Finish::kStop || how == Finish::kLength)
    ++totals_.stopped;
  else if (how == Finish::kCancelled)
    ++totals_.cancelled;
  else
    ++(record.dispatched ? totals_.failed : totals_.refused);
  if (record.text && record.text->stopped()) ++totals_.stop_matched;
  Ended ended;
  ended.finish = how;
  ended.status = status;
  if (record.text) ended.text = record.text->tail();
  ended.usage.prompt_tokens = static_cast<uint32_t>(record.prompt.size());
  ended.usage.completion_tokens = record.log.size();
  ended.usage.cached_tokens = record.cached_tokens;
  ended.remote_prefill = record.remote_prefill;
  ended.timing.queue = seconds(record.dispatched.value_or(now) - record.admitted);
  ended.timing.first_token = seconds(record.first_token.value_or(now) - record.admitted);
  ended.timing.total = seconds(now - record.admitted);
  ended.kv = record.kv;
  record.over = now;
  if (record.first_token) probes().stage("decode", seconds(now - *record.first_token));
  probes().ended(ended, record.dispatched.has_value());
  record.ended = std::move(ended);
}

void Dispatcher::break_off(Record& record, Finish how, Status status) {
  if (!record.detached) {
    Ended told = *record.ended;
    // What was not sent is not the client's: neither is the text behind it.
    if (!record.log.all_sent()) told.text.clear();
    told.finish = how;
    told.status = std::move(status);
    record.client.tell(std::move(told));
  }
  retire(record);
}

void Dispatcher::erase(Record& record) {
  CHECK(!record.attempt);
  if (record.phase == Phase::kRetained) unretain(record);
  drop_encoding(record);
  requests_.erase(record.submit.request);
}

}  // namespace headrace::coordinator

#include "coordinator/dispatcher.h"

#include <algorithm>
#include <utility>

#include "coordinator/sampling_limits.h"
#include "protocol/check.h"

namespace headrace::coordinator {
namespace {

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

size_t text_bytes(const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  size_t bytes = 0;
  if (const auto* messages = std::get_if<std::vector<ChatMessage>>(&prompt))
    for (const ChatMessage& m : *messages) bytes += m.role.size() + m.content.size();
  return bytes;
}

Status check_prompt(const Prompt& prompt) {
  if (text_bytes(prompt) > kPromptBytesMax)
    return error(Errc::kInvalid, "prompt is " + std::to_string(text_bytes(prompt)) +
                                     " bytes of text, the limit is " +
                                     std::to_string(kPromptBytesMax));
  const auto* messages = std::get_if<std::vector<ChatMessage>>(&prompt);
  if (messages && messages->empty())
    return error(Errc::kInvalid, "prompt: the list of messages is empty");
  const auto* ids = std::get_if<std::vector<Token>>(&prompt);
  if (ids && ids->empty()) return error(Errc::kInvalid, "prompt: the list of ids is empty");
  if (ids && ids->size() > kPromptBytesMax)
    return error(Errc::kInvalid, "prompt has " + std::to_string(ids->size()) +
                                     " ids, the limit is " + std::to_string(kPromptBytesMax));
  return {};
}

}  // namespace

Dispatcher::Dispatcher(std::shared_ptr<Strand> strand, Random& random, Ref<MeshPort> mesh,
                       TextModelFactory make_text, DispatcherOptions options)
    : strand_(std::move(strand)),
      random_(random),
      mesh_(std::move(mesh)),
      make_text_(std::move(make_text)),
      options_(options) {}

Status Dispatcher::check_submit(const Submit& submit) const {
  if (queue_.size() >= kQueueMax)
    return error(Errc::kOverloaded,
                 "the queue holds " + std::to_string(kQueueMax) + " requests, its limit");
  if (requests_.contains(submit.request))
    return error(Errc::kInvalid, "request: another request of this id is running");
  if (submit.max_tokens && *submit.max_tokens == 0)
    return error(Errc::kInvalid, "max_tokens is 0, at least 1 is needed");
  if (submit.deadline <= Duration{0}) return error(Errc::kInvalid, "deadline has passed already");
  const uint32_t vocab = registry_.card() ? registry_.card()->vocab : UINT32_MAX;
  if (Status status = check_sampling(submit.sampling, vocab); !status.ok()) return status;
  return check_prompt(submit.prompt);
}

void Dispatcher::on(Submit submit) {
  ++totals_.submitted;
  if (Status status = check_submit(submit); !status.ok()) {
    ++totals_.refused;
    Ended ended;
    ended.finish = Finish::kError;
    ended.status = std::move(status);
    submit.client.tell(std::move(ended));
    return;
  }
  auto owned = std::make_unique<Record>();
  Record& record = *owned;
  record.sampling = submit.sampling;
  record.sampling.seed = submit.seed ? *submit.seed : random_.next();
  record.admitted = record.queued = record.touched = strand_->now();
  record.submit = std::move(submit);
  requests_.emplace(record.submit.request, std::move(owned));
  // Without a worker there is no card to judge by: it is done once one joins.
  if (text_ && registry_.card())
    if (Status status = tokenize(record); !status.ok())
      return finish(record, Finish::kError, std::move(status));
  queue_.push_back(&record);
  place();
}

// Needs text_ and the card. Afterwards the record knows its prompt and how long its answer may be.
Status Dispatcher::tokenize(Record& record) {
  CHECK(text_ && registry_.card());
  const ModelCard& card = *registry_.card();
  Result<std::vector<Token>> ids = text_->encode(record.submit.prompt, record.submit.special);
  if (!ids) return ids.error();
  if (ids->empty()) return error(Errc::kInvalid, "prompt is empty: it gives no token");
  for (const Token id : *ids)
    if (id < 0 || static_cast<uint32_t>(id) >= card.vocab)
      return error(Errc::kInvalid, "prompt: id " + std::to_string(id) +
                                       " is outside of the vocabulary of " +
                                       std::to_string(card.vocab));
  if (ids->size() >= card.context)
    return error(Errc::kContextExceeded, "prompt has " + std::to_string(ids->size()) +
                                             " tokens, the context holds " +
                                             std::to_string(card.context));
  record.prompt = std::move(*ids);
  record.submit.prompt = std::vector<Token>{};
  const uint32_t room = card.context - static_cast<uint32_t>(record.prompt.size());
  record.max_tokens = std::min(record.submit.max_tokens.value_or(room), room);
  record.cutter = text_->cutter();
  record.tokenized = true;
  return {};
}

void Dispatcher::on(Acknowledge ack) {
  auto it = requests_.find(ack.request);
  if (it == requests_.end()) return;
  Record& record = *it->second;
  if (!record.log.acknowledge(ack.position)) {
    // Beyond what was sent, or going back: the client breaks the protocol.
    return finish(record, Finish::kCancelled,
                  error(Errc::kInvalid, "acknowledged position " + std::to_string(ack.position) +
                                            " was never sent or goes back"));
  }
  record.touched = strand_->now();
  deliver(record);
}

void Dispatcher::on(Abandon abandon) {
  auto it = requests_.find(abandon.request);
  if (it == requests_.end()) return;
  finish(*it->second, Finish::kCancelled, error(Errc::kCancelled, "the client gave up"));
}

// Sends what the credit allows; then, if that was all of an answer that is over, its end.
void Dispatcher::deliver(Record& record) {
  if (const auto ids = record.log.sendable(); !ids.empty()) {
    Chunk chunk;
    chunk.position = record.log.sent();
    chunk.ids.assign(ids.begin(), ids.end());
    chunk.text = record.cutter->push(ids);
    record.log.mark_sent(chunk.ids.size());
    record.submit.client.tell(std::move(chunk));
  }
  if (!record.ended || !record.log.all_sent()) return;
  if (record.cutter) record.ended->text = record.cutter->finish();
  record.submit.client.tell(std::move(*record.ended));
  erase(record);
}

void Dispatcher::finish(Record& record, Finish how, Status status) {
  const bool over_before = record.phase == Phase::kDraining;
  if (record.attempt) close_attempt(record, status);
  if (record.phase == Phase::kQueued) queue_.remove(&record);
  record.phase = Phase::kDraining;
  record.touched = strand_->now();
  if (!over_before) {
    if (how == Finish::kStop || how == Finish::kLength)
      ++totals_.stopped;
    else if (how == Finish::kCancelled)
      ++totals_.cancelled;
    else
      ++(record.dispatched ? totals_.failed : totals_.refused);
    Ended ended;
    ended.usage.prompt_tokens = static_cast<uint32_t>(record.prompt.size());
    ended.usage.completion_tokens = record.log.size();
    ended.usage.cached_tokens = record.cached_tokens;
    ended.remote_prefill = record.remote_prefill;
    const Instant now = strand_->now();
    ended.timing.queue = seconds(record.dispatched.value_or(now) - record.admitted);
    ended.timing.first_token = seconds(record.first_token.value_or(now) - record.admitted);
    ended.timing.total = seconds(now - record.admitted);
    ended.kv = record.kv;
    record.ended = std::move(ended);
  }
  // A client that leaves while its answer drains gets that verdict, not the one it did not fetch.
  record.ended->finish = how;
  record.ended->status = std::move(status);
  if (how == Finish::kCancelled) {
    record.submit.client.tell(std::move(*record.ended));
    erase(record);
  } else {
    deliver(record);
  }
  place();
}

void Dispatcher::erase(Record& record) {
  CHECK(!record.attempt);
  requests_.erase(record.submit.request);
}

void Dispatcher::on(AskStatus ask) {
  ClusterStatus status;
  status.not_ready = not_ready();
  status.ready = status.not_ready.empty();
  status.model = registry_.card();
  status.chat = text_ && text_->has_chat();
  for (const auto& [id, worker] : registry_) {
    WorkerStatus w;
    w.id = id;
    w.name = worker.hello.name;
    w.role = worker.hello.role;
    w.state = worker.stalled ? "stalled" : "ready";
    w.pid = worker.hello.pid;
    w.device = worker.hello.device;
    w.kv = worker.hello.kv;
    w.metrics = worker.hello.metrics;
    w.blocks = worker.beat.blocks;
    w.in_flight = worker.load.in_flight();
    w.running = worker.beat.running;
    w.steps = worker.beat.steps;
    status.workers.push_back(std::move(w));
  }
  for (const auto& [id, record] : requests_) {
    if (record->phase == Phase::kQueued)
      ++status.waiting;
    else if (record->phase == Phase::kDraining)
      ++status.draining;
    else
      ++status.running;
  }
  status.totals = totals_;
  ask.reply.tell(std::move(status));
}

void Dispatcher::on(AskTokenize ask) {
  const Status bad = text_ ? check_prompt(ask.prompt) : error(Errc::kUnavailable, not_ready());
  ask.reply.tell(bad.ok() ? text_->encode(ask.prompt, ask.special)
                          : Result<std::vector<Token>>(bad));
}

void Dispatcher::on(AskDetokenize ask) {
  ask.reply.tell(text_ ? text_->decode(ask.ids)
                       : Result<std::string>(error(Errc::kUnavailable, not_ready())));
}

std::string Dispatcher::not_ready() const {
  if (!registry_.card()) return "no worker has joined";
  if (registry_.decoders() == 0) return "no worker that decodes has joined";
  if (!text_ && !text_error_.ok()) return "no tokenizer: " + text_error_.message;
  if (!text_)
    return "the tokenizer is being fetched" +
           (fetch_trouble_.ok() ? std::string() : ": " + fetch_trouble_.message);
  for (const auto& [id, worker] : registry_)
    if (worker.hello.role != Role::kPrefill && !worker.stalled) return {};
  return "all workers that decode make no progress";
}

}  // namespace headrace::coordinator

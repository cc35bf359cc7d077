// What the Dispatcher says of itself and its workers.
#include <algorithm>

#include "coordinator/dispatcher.h"

namespace headrace::coordinator {
namespace {

std::string state(const WorkerRecord& worker) {
  if (worker.draining()) return "draining";
  if (worker.stalled) return "stalled";
  return worker.suspect ? "suspect" : "ready";
}

WorkerStatus describe(const WorkerRecord& worker) {
  WorkerStatus w;
  w.id = worker.id;
  w.name = worker.hello.name;
  w.role = worker.hello.role;
  w.state = state(worker);
  w.pid = worker.hello.pid;
  w.device = worker.hello.device;
  w.kv = worker.hello.kv;
  w.metrics = worker.hello.metrics;
  w.blocks = worker.beat.blocks;
  w.in_flight = worker.load.in_flight();
  w.running = worker.beat.running;
  w.steps = worker.beat.steps;
  w.prefill = worker.beat.prefill;
  w.decode = worker.beat.decode;
  return w;
}

}  // namespace

void Dispatcher::on(AskStatus ask) { ask.reply.tell(make_status()); }

ClusterStatus Dispatcher::make_status() const {
  ClusterStatus status;
  status.not_ready = not_ready();
  status.ready = status.not_ready.empty();
  status.model = registry_.card();
  status.chat = text_ && text_->has_chat();
  status.leaving = draining();
  status.metrics = options_.metrics;
  for (const auto& [id, worker] : registry_) status.workers.push_back(describe(worker));
  for (const auto& [id, record] : requests_) {
    if (record->phase == Phase::kQueued || record->phase == Phase::kParked)
      ++status.waiting;
    else if (record->phase == Phase::kDraining)
      ++status.draining;
    else if (record->phase != Phase::kRetained)
      ++status.running;
  }
  status.totals = totals_;
  return status;
}

// Empty: some route gives a token now. With `always` that takes both pools, although a request is
// answered by one of them if it must.
std::string Dispatcher::not_ready() const {
  if (draining()) return "the coordinator is shutting down";
  if (!registry_.card()) return "no worker has joined";
  if (registry_.decoders() == 0) return "no worker that decodes has joined";
  if (!text_ && !text_error_.ok()) return "no tokenizer: " + text_error_.message;
  if (!text_)
    return "the tokenizer is being fetched" +
           (fetch_trouble_.ok() ? std::string() : ": " + fetch_trouble_.message);
  // One of role both prefills for itself.
  const auto none_but = [&](Role role) {
    return std::none_of(registry_.begin(), registry_.end(), [&](const auto& w) {
      return w.second.hello.role != role && w.second.serves();
    });
  };
  if (none_but(Role::kPrefill)) return "no worker that decodes makes progress and takes requests";
  if (options_.pd == PdMode::kAlways && none_but(Role::kDecode))
    return "no worker that prefills takes requests";
  return {};
}

}  // namespace headrace::coordinator

// What the Dispatcher says of itself and its workers.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

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

std::string text_of(const RequestId& id) {
  char text[40];
  std::snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, id.hi, id.lo);
  return text;
}

}  // namespace

void Dispatcher::on(AskStatus ask) {
  ClusterStatus status = make_status();
  show(status);
  ask.reply.tell(std::move(status));
}

// The pages never say less than a client was told.
void Dispatcher::show(const ClusterStatus& status) {
  if (watched_) probes().status(status);
}

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
  if (registry_.decoders() == 0 && had_route_) return gone();
  if (!registry_.card()) return "no worker has joined";
  if (registry_.decoders() == 0) return "no worker that decodes has joined";
  if (registry_.open_decoders() == 0) return "every worker that decodes is draining";
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

std::string Dispatcher::gone() const {
  return "no worker that decodes is left: " + decoders_gone_why_;
}

// What became of an attempt, before it is closed.
void Dispatcher::note_failed(const Record& record, const std::vector<WorkerId>& culprits,
                             const Status& why) {
  if (!options_.log) return;
  const AttemptRecord& attempt = *record.attempt;
  const bool handing = record.phase == Phase::kGranting || record.phase == Phase::kPrefilling;
  std::string line =
      "request " + text_of(record.submit.request) + ": attempt " +
      std::to_string(raw(attempt.attempt)) + " failed " +
      (handing ? "in the hand-off from " + title(*attempt.prefill) + " to " : "at ") +
      title(attempt.decode) + ", " + std::to_string(record.log.size()) +
      " tokens are kept: " + std::string(name(why.code)) + ", " + why.message + "; blamed:";
  for (const WorkerId id : culprits) line += " " + title(id);
  note(Event::kFailed, line + (culprits.empty() ? " nobody" : ""));
}

void Dispatcher::note_ready() {
  if (!options_.log) return;
  std::string why = not_ready();
  // How it begins goes without saying.
  if (noted_ready_ == why || (!noted_ready_ && !registry_.card())) return;
  note(Event::kCluster, why.empty() ? kClusterReady : "the cluster is not ready: " + why);
  noted_ready_ = std::move(why);
}

}  // namespace headrace::coordinator

#include "tests/sim/worker_rig.h"

#include <utility>

#include "protocol/check.h"
#include "protocol/codec.h"
#include "tests/sim/virtual_time.h"

namespace headrace::sim {

SimWorker start_worker(SimWorld& world, worker::WorkerOptions options,
                       const SimEngineOptions& engine, const Endpoint& coordinator) {
  SimWorker w;
  w.process = &world.spawn(options.name);
  if (options.kv.host == "127.0.0.1") options.kv.host = options.name;  // a host of its own
  options.handoff = on_virtual_time(options.handoff);
  const auto strand = w.process->make_strand();
  w.engine = std::make_shared<SimEngine>(strand, engine);
  w.process->own(w.engine);
  w.events = std::make_shared<std::vector<std::string>>();
  w.id = std::make_shared<WorkerId>();
  worker::MeshEvents events;
  events.joined = [e = w.events, id = w.id](WorkerId given) {
    e->push_back("joined");
    *id = given;
  };
  events.lost = [e = w.events](const Status& s) { e->push_back("lost: " + s.message); };
  events.rejected = [e = w.events](const Status& s) { e->push_back("rejected: " + s.message); };
  auto tokenizer = std::make_shared<Bytes>(sim_tokenizer());
  w.node = std::make_shared<worker::WorkerNode>(strand, w.process->network(), w.process->random(),
                                                *w.engine, std::move(options), std::move(tokenizer),
                                                coordinator, events);
  w.process->own(w.node);
  w.node->start([e = w.events](const Status& s) {
    if (!s.ok()) e->push_back("not started: " + s.message);
  });
  return w;
}

bool blocks_add_up(const BlockCounts& c) {
  return c.free + c.active + c.cached + c.incoming + c.pinned + c.quarantined == c.total;
}

HandCoordinator::HandCoordinator(SimWorld& world)
    : process_(world.spawn("coordinator")), strand_(process_.make_strand()) {
  auto listener = process_.network().listen(
      kAddress, {}, strand_,
      [this](std::unique_ptr<Link> link) { on_accept(std::shared_ptr<Link>(std::move(link))); });
  CHECK(listener.has_value());
  listener_ = std::move(*listener);
  strand_->post([this] { ping(); });
}

HandCoordinator::~HandCoordinator() = default;

void HandCoordinator::send(const std::string& worker, ToWorker message) {
  strand_->post([this, worker, m = std::move(message)] {
    if (const auto it = peers_.find(worker); it != peers_.end()) it->second.link->send(encode(m));
  });
}

const to_coordinator::Register& HandCoordinator::registration(const std::string& worker) const {
  return peers_.at(worker).registration;
}

std::vector<to_coordinator::TokenRun> HandCoordinator::runs(const std::string& worker,
                                                            TransferId transfer) const {
  const auto it = runs_.find({worker, transfer});
  return it == runs_.end() ? std::vector<to_coordinator::TokenRun>() : it->second;
}

std::vector<Token> HandCoordinator::tokens(const std::string& worker, TransferId transfer) const {
  std::vector<Token> out;
  const auto all = runs(worker, transfer);
  for (const auto& run : all) {
    if (run.position != all.front().position + out.size()) break;
    out.insert(out.end(), run.ids.begin(), run.ids.end());
  }
  return out;
}

bool HandCoordinator::finished(const std::string& worker, TransferId transfer) const {
  const auto it = runs_.find({worker, transfer});
  return it != runs_.end() && it->second.back().finish != Finish::kNone;
}

void HandCoordinator::drop_link(const std::string& worker) {
  strand_->post([this, worker] {
    if (const auto it = peers_.find(worker); it != peers_.end()) {
      it->second.link->close();
      peers_.erase(it);
    }
  });
}

void HandCoordinator::on_accept(std::shared_ptr<Link> link) {
  links_.push_back(link);
  const auto name = std::make_shared<std::string>();
  const std::weak_ptr weak = link;
  link->start(
      [this, weak, name](const Bytes& frame) {
        if (const auto l = weak.lock()) on_frame(l, name, frame);
      },
      [this, weak](const Status&) {
        std::erase_if(peers_, [&](const auto& p) { return p.second.link == weak.lock(); });
      });
}

void HandCoordinator::on_frame(const std::shared_ptr<Link>& link,
                               const std::shared_ptr<std::string>& name, const Bytes& frame) {
  auto message = decode_to_coordinator(frame);
  if (!message) {
    unread.push_back(message.error().message);
    return;
  }
  if (const auto* r = std::get_if<to_coordinator::Register>(&*message)) {
    *name = r->name;
    peers_[*name] = {link, *r};
    if (welcoming) {
      link->send(
          encode(ToWorker(to_worker::Welcome{term, WorkerId{next_worker_++}, 250ms, cache_key})));
    }
  }
  if (const auto* tokens = std::get_if<to_coordinator::Tokens>(&*message)) {
    for (const auto& run : tokens->runs) runs_[{*name, run.transfer}].push_back(run);
  }
  log_[*name].push_back(std::move(*message));
}

void HandCoordinator::ping() {
  timer_ = strand_->after(250ms, [this] { ping(); });
  if (!pinging) return;
  const to_worker::Ping ping{term, {live.begin(), live.end()}, 0, ++pings_};
  for (const auto& [name, peer] : peers_) peer.link->send(encode(ToWorker(ping)));
}

}  // namespace headrace::sim

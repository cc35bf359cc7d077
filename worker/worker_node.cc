#include "worker/worker_node.h"

#include <utility>

namespace headrace::worker {

WorkerNode::WorkerNode(std::shared_ptr<Strand> strand, Network& network, Random& random,
                       Engine& engine, WorkerOptions options,
                       std::shared_ptr<const Bytes> tokenizer, const Endpoint& coordinator,
                       MeshEvents events)
    : strand_(std::move(strand)), body_(std::make_shared<Body>()) {
  const Duration silence = options.forget_after;
  body_->worker = std::make_shared<Worker>(strand_, network, random, engine, std::move(options),
                                           std::move(tokenizer));
  body_->client =
      std::make_shared<MeshClient>(strand_, network, random, coordinator, silence,
                                   Ref<Worker>(strand_, body_->worker), std::move(events));
}

WorkerNode::~WorkerNode() {
  strand_->post([body = std::move(body_)] {});
}

void WorkerNode::start(std::function<void(Status)> started) {
  strand_->post([weak = std::weak_ptr(body_), strand = strand_, report = std::move(started)] {
    const auto body = weak.lock();
    if (!body) return;
    const Status status = body->worker->start(Ref<Uplink>(strand, body->client));
    if (status.ok()) body->client->start();
    if (report) report(status);
  });
}

void WorkerNode::drain(Duration grace, std::function<void()> done) {
  strand_->post([weak = std::weak_ptr(body_), grace, end = std::move(done)]() mutable {
    if (const auto body = weak.lock()) body->worker->on(Drain{grace, std::move(end)});
  });
}

}  // namespace headrace::worker

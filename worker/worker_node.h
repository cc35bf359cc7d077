#pragma once

#include <functional>
#include <memory>

#include "protocol/link.h"
#include "protocol/random.h"
#include "worker/engine.h"
#include "worker/mesh_client.h"
#include "worker/options.h"
#include "worker/worker.h"

namespace headrace::worker {

// A whole worker: the actor and its link to the coordinator, wired on one strand. Used alike by the
// CLI, the in-process cluster and the simulator, which differ in what they hand in.
//
// Network, random and engine must outlive the strand's last task (real runtime: destroy the node,
// stop the runtime, then destroy them). May be made and destroyed on any thread.
class WorkerNode {
 public:
  WorkerNode(std::shared_ptr<Strand> strand, Network& network, Random& random, Engine& engine,
             WorkerOptions options, std::shared_ptr<const Bytes> tokenizer,
             const Endpoint& coordinator, MeshEvents events);
  // Ends the worker: its actors are destroyed on the strand, links close.
  ~WorkerNode();
  WorkerNode(const WorkerNode&) = delete;

  // Opens the KV channel, then begins to join. `started` is called on the strand; not ok (port in
  // use): nothing runs.
  void start(std::function<void(Status)> started = {});

  // No new work; `done` comes on the strand when nothing runs here any more, or after `grace`.
  void drain(Duration grace, std::function<void()> done);

  // For status and tests; to be used on the strand.
  const Worker& worker() const { return *body_->worker; }

 private:
  struct Body {
    std::shared_ptr<Worker> worker;
    std::shared_ptr<MeshClient> client;
  };
  std::shared_ptr<Strand> strand_;
  std::shared_ptr<Body> body_;
};

}  // namespace headrace::worker

#pragma once

#include <memory>

#include "coordinator/dispatcher.h"
#include "coordinator/mesh_door.h"
#include "protocol/link.h"
#include "protocol/random.h"

namespace headrace::coordinator {

struct CoordinatorOptions {
  Endpoint mesh{"127.0.0.1", 0};  // where workers knock; port 0: any
  DispatcherOptions dispatcher;
  TextModelFactory make_text = make_text_model;
  // Where text becomes tokens, if the dispatcher's options name none: on another thread than the
  // node's strand, a long prompt holds nobody up. None: the node's strand.
  std::shared_ptr<Strand> text_strand{};
};

// A whole coordinator but for the client edge: the Dispatcher and its door to the workers, wired on
// one strand. Used alike by the CLI, the in-process cluster and the simulator, which differ in what
// they hand in; clients are the gateway's sessions or any other ClientPort.
//
// Network and random must outlive the strand's last task (real runtime: destroy the node, stop the
// runtime, then destroy them). May be made and destroyed on any thread.
class CoordinatorNode {
 public:
  // Opens the door at once. kUnavailable with one line that names the address: nothing runs.
  static Result<std::unique_ptr<CoordinatorNode>> start(std::shared_ptr<Strand> strand,
                                                        Network& network, Random& random,
                                                        CoordinatorOptions options);
  // Ends the actors on their strand; links close, clients hear nothing more.
  ~CoordinatorNode();
  CoordinatorNode(const CoordinatorNode&) = delete;

  // Where workers may join: the real port.
  const Endpoint& mesh() const { return mesh_; }
  const Ref<Dispatcher>& dispatcher() const { return dispatcher_; }
  // For tests; to be used on the strand.
  const MeshDoor& door() const { return *body_->door; }
  const Dispatcher& actor() const { return *body_->dispatcher; }

 private:
  struct Body {
    std::shared_ptr<MeshDoor> door;
    std::shared_ptr<Dispatcher> dispatcher;
  };
  CoordinatorNode(std::shared_ptr<Strand> strand, std::shared_ptr<Body> body, Endpoint mesh);

  std::shared_ptr<Strand> strand_;
  std::shared_ptr<Body> body_;
  Endpoint mesh_;
  Ref<Dispatcher> dispatcher_;
};

}  // namespace headrace::coordinator

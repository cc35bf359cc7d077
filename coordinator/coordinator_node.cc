#include "coordinator/coordinator_node.h"

#include <utility>

namespace headrace::coordinator {

Result<std::unique_ptr<CoordinatorNode>> CoordinatorNode::start(std::shared_ptr<Strand> strand,
                                                                Network& network, Random& random,
                                                                CoordinatorOptions options) {
  if (!options.dispatcher.text_strand) options.dispatcher.text_strand = options.text_strand;
  auto body = std::make_shared<Body>();
  body->door = std::make_shared<MeshDoor>(strand);
  body->dispatcher = std::make_shared<Dispatcher>(strand, random, Ref<MeshPort>(strand, body->door),
                                                  std::move(options.make_text), options.dispatcher);
  Result<Endpoint> mesh =
      body->door->listen(network, options.mesh, Ref<WorkerEvents>(strand, body->dispatcher));
  std::unique_ptr<CoordinatorNode> node(
      new CoordinatorNode(std::move(strand), std::move(body), mesh ? *mesh : Endpoint{}));
  if (!mesh) return mesh.error();
  node->dispatcher_.tell(BeginSweeps{});
  return node;
}

CoordinatorNode::CoordinatorNode(std::shared_ptr<Strand> strand, std::shared_ptr<Body> body,
                                 Endpoint mesh)
    : strand_(std::move(strand)),
      body_(std::move(body)),
      mesh_(std::move(mesh)),
      dispatcher_(strand_, body_->dispatcher) {}

CoordinatorNode::~CoordinatorNode() {
  // Timers and links may end only where they live.
  strand_->post([body = std::move(body_)]() mutable { body.reset(); });
}

}  // namespace headrace::coordinator

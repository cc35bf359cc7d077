#include "worker/worker_node.h"

#include <doctest/doctest.h>

#include "tests/worker/worker_fixture.h"

namespace headrace::worker {
namespace {

TEST_CASE("a node joins, serves, and leaves nothing behind when destroyed") {
  Rig rig;
  auto& w = rig.add("w", Role::kBoth);
  const auto m = rig.prepare("w", rig.prompt(20), 400, false);
  rig.coordinator.send("w", m);
  rig.world.run_for(50ms);
  CHECK(!rig.coordinator.tokens("w", m.transfer).empty());
  // The world's process holds it too; a second node under the same roof shows the ending.
  const auto strand = w.process->make_strand();
  sim::SimEngine engine(strand, rig.engine);
  bool lost = false;
  MeshEvents events;
  events.lost = [&](const Status&) { lost = true; };
  WorkerOptions options;
  options.name = "other";
  options.kv.host = "other";
  auto node = std::make_unique<WorkerNode>(strand, w.process->network(), w.process->random(),
                                           engine, options, std::make_shared<Bytes>(),
                                           sim::HandCoordinator::kAddress, events);
  node->start();
  rig.world.run_for(100ms);
  CHECK(rig.coordinator.registered("other"));
  node.reset();
  rig.world.run_for(100ms);
  CHECK(!rig.coordinator.registered("other"));
  CHECK(!lost);
  REQUIRE(rig.await_finish("w", m.transfer));
}

TEST_CASE("a KV port in use is reported by address and nothing runs") {
  Rig rig;
  const auto& w = rig.add("w", Role::kDecode);
  const auto strand = w.process->make_strand();
  sim::SimEngine engine(strand, rig.engine);
  WorkerOptions options;
  options.name = "other";
  options.kv = w.node->worker().kv_endpoint();
  WorkerNode node(strand, w.process->network(), w.process->random(), engine, options,
                  std::make_shared<Bytes>(), sim::HandCoordinator::kAddress, {});
  std::optional<Status> started;
  node.start([&](Status s) { started = std::move(s); });
  rig.world.run_for(100ms);
  REQUIRE(started.has_value());
  CHECK(started->code == Errc::kUnavailable);
  CHECK(started->message.find(to_string(options.kv)) != std::string::npos);
  CHECK(!rig.coordinator.registered("other"));
}

}  // namespace
}  // namespace headrace::worker

#include <optional>

#include "tests/sim/cast.h"
#include "tests/sim/mutants.h"
#include "worker/handoff_receiver.h"

// Mistakes that the campaign cannot see, because another fence stands behind the one that is gone
// or because time passes too fast, each in a small scene of its own.

namespace headrace::sim {
namespace {

using worker::HandoffReceiver;

// A receiver that expects one transfer, and a sender played by hand.
std::string answer_to_hello(const std::function<void(worker::handoff::Hello&)>& change) {
  SimWorld world;
  SimProcess& d = world.spawn("d");
  SimProcess& p = world.spawn("p");
  const auto strand = d.make_strand();
  std::vector<std::byte> memory(256);
  HandoffReceiver::Host host;
  bool began = false;
  host.ours = [](BlockRef) { return true; };
  host.memory.host = [&](BlockId) { return memory.data(); };
  host.began = [&](TransferId) { began = true; };
  host.ended = [](TransferId, const Status&) {};
  worker::ReceiveGrant grant;
  grant.transfer = {1, 2};
  grant.attempt = Attempt{2};
  grant.decode = {3, 4};
  grant.key = {5, 6};
  grant.tokens = 16;
  grant.blocks = {{BlockId{0}, Generation{7}}};
  std::unique_ptr<HandoffReceiver> receiver;
  strand->post([&] {
    auto made = HandoffReceiver::listen(strand, d.network(), {"d", 7500}, {}, {{8, 9}, 16, 256},
                                        std::move(host));
    receiver = std::move(*made);
    receiver->expect(grant);
  });
  world.run_for(10ms);
  worker::handoff::Hello hello;
  hello.transfer = grant.transfer;
  hello.attempt = grant.attempt;
  hello.prefill = {10, 11};
  hello.decode = grant.decode;
  hello.layout = {8, 9};
  hello.tokens = grant.tokens;
  change(hello);
  hello.mac = worker::hello_mac(hello, grant.key);
  std::unique_ptr<Link> link;
  p.network().dial({"d", 7500}, 1s, {}, p.make_strand(), [&](auto dialled) {
    link = std::move(*dialled);
    link->start([](const Bytes&) {}, [](const Status&) {});
    link->send(worker::encode_handoff(hello));
  });
  world.run_for(100ms);
  const bool admitted = began;
  strand->post([&] { receiver.reset(); });
  world.run_for(10ms);
  link.reset();
  return admitted ? "admitted" : "refused";
}

// One worker under a coordinator played by hand.
struct Stage {
  SimWorld world;
  HandCoordinator coordinator{world};
  SimWorker worker;

  Stage(Role role, SimEngineOptions engine) {
    worker::WorkerOptions o;
    o.name = "w";
    o.role = role;
    worker = start_worker(world, std::move(o), engine, HandCoordinator::kAddress);
    world.run_while([&] { return !coordinator.registered("w"); }, 5s);
    world.run_for(20ms);
  }
  to_worker::Prepare prepare(bool remote) {
    to_worker::Prepare m;
    m.term = coordinator.term;
    m.worker = coordinator.registration("w").incarnation;
    m.request = world.random().mint<RequestId>();
    m.transfer = world.random().mint<TransferId>();
    m.attempt = Attempt{1};
    m.prompt.assign(40, 7);
    m.max_tokens = 400;
    m.remote_prefill = remote;
    m.deadline = 600s;
    return m;
  }
  bool holds_nothing() const { return worker.node->worker().sequences() == 0; }
};

}  // namespace

std::string scene_hello_of_another_attempt() {
  if (answer_to_hello([](auto&) {}) != "admitted") return "a good hello was refused";
  const auto answer = answer_to_hello([](auto& hello) { hello.attempt = Attempt{1}; });
  return answer == "refused" ? "" : "a sender of another attempt was admitted";
}

std::string scene_hello_to_another_incarnation() {
  const auto answer = answer_to_hello([](auto& hello) { hello.decode = {3, 5}; });
  return answer == "refused" ? "" : "a sender that meant another incarnation was admitted";
}

std::string scene_lease_runs_out() {
  Stage stage(Role::kDecode, {});
  const auto m = stage.prepare(true);
  stage.coordinator.send("w", m);
  stage.world.run_for(1s);
  if (stage.holds_nothing()) return "no grant was made";
  stage.world.run_for(3s);
  return stage.holds_nothing() ? "" : "a grant that nobody renewed is held for 4 s";
}

std::string scene_cancel_while_in_step() {
  SimEngineOptions engine;
  engine.step_base = 50ms;
  Stage stage(Role::kDecode, engine);
  auto m = stage.prepare(false);
  stage.coordinator.live.insert(m.transfer);
  stage.coordinator.send("w", m);
  stage.world.run_for(500ms);
  if (stage.holds_nothing()) return "it does not run";
  stage.coordinator.send("w", to_worker::Cancel{stage.coordinator.term, m.transfer, m.attempt, {}});
  stage.world.run_for(1s);
  return stage.holds_nothing() ? "" : "1 s after Cancel it is still held";
}

// Nobody is there to answer: the deadline's error has to.
std::string scene_deadline_without_worker() {
  struct Keeper final : coordinator::ClientPort {
    void on(coordinator::Chunk) override {}
    void on(coordinator::Ended e) override { ended = std::move(e); }
    std::optional<coordinator::Ended> ended;
  };
  SimWorld world;
  SimProcess& process = world.spawn("coordinator");
  auto node = coordinator::CoordinatorNode::start(process.make_strand(), process.network(),
                                                  process.random(), {{"coordinator", 7401}, {}});
  const std::shared_ptr<coordinator::CoordinatorNode> owned = std::move(*node);
  process.own(owned);
  const auto keeper = std::make_shared<Keeper>();
  const auto strand = world.spawn("client").make_strand();
  coordinator::Submit submit;
  submit.request = {1, 1};
  submit.prompt = std::vector<Token>{1, 2, 3};
  submit.deadline = 1s;
  submit.client = Ref<coordinator::ClientPort>(strand, keeper);
  owned->dispatcher().tell(submit);
  world.run_for(3s);
  return keeper->ended ? "" : "no answer 2 s after the deadline";
}

}  // namespace headrace::sim

#include "coordinator/mesh_door.h"
#include "protocol/codec.h"
#include "protocol/local_network.h"
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

struct Events final : WorkerEvents {
  void on(WorkerJoined m) override { joined.push_back(std::move(m)); }
  void on(FromWorker m) override { messages.push_back(std::move(m)); }
  void on(WorkerLost m) override { lost.push_back(std::move(m)); }
  std::vector<WorkerJoined> joined;
  std::vector<FromWorker> messages;
  std::vector<WorkerLost> lost;
};

// One end of a link to the door.
struct Knocker {
  std::unique_ptr<Link> link;
  std::vector<ToWorker> got;
  bool closed = false;
  void say(const ToCoordinator& m) { link->send(encode(m)); }
};

struct Scene {
  Scene() {
    auto at = door->listen(network, {"mesh", 0}, Ref<WorkerEvents>(strand, events));
    REQUIRE(at);
    endpoint = *at;
  }
  ~Scene() {
    door = nullptr;
    strand->drain();
    strand->stop();
  }
  std::unique_ptr<Knocker> knock() {
    auto k = std::make_unique<Knocker>();
    network.dial(endpoint, 1s, {}, strand, [&k](Result<std::unique_ptr<Link>> link) {
      REQUIRE(link);
      k->link = std::move(*link);
      k->link->start(
          [p = k.get()](const Bytes& frame) {
            auto m = decode_to_worker(frame);
            REQUIRE(m);
            p->got.push_back(std::move(*m));
          },
          [p = k.get()](const Status&) { p->closed = true; });
    });
    strand->drain();
    REQUIRE(k->link);
    return k;
  }

  std::shared_ptr<ManualStrand> strand = std::make_shared<ManualStrand>();
  LocalNetwork network;
  std::shared_ptr<Events> events = std::make_shared<Events>();
  std::shared_ptr<MeshDoor> door = std::make_shared<MeshDoor>(strand);
  Endpoint endpoint;
};

}  // namespace

TEST_CASE("a worker knocks, speaks, is spoken to and leaves") {
  Scene s;
  auto k = s.knock();
  k->say(hello(Role::kDecode, 4));
  s.strand->drain();
  REQUIRE(s.events->joined.size() == 1);
  CHECK(s.events->joined[0].hello == hello(Role::kDecode, 4));
  const WorkerId id = s.events->joined[0].worker;
  to_coordinator::Beat beat;
  beat.steps = 9;
  k->say(beat);
  s.strand->drain();
  REQUIRE(s.events->messages.size() == 1);
  CHECK(s.events->messages[0].worker == id);
  CHECK(std::get<to_coordinator::Beat>(s.events->messages[0].message).steps == 9);
  const ToWorker welcome = to_worker::Welcome{Term{2}, id, 250ms};
  s.door->on(SendToWorker{id, welcome});
  s.door->on(SendToWorker{WorkerId{99}, welcome});  // nobody
  s.strand->drain();
  CHECK(k->got == std::vector<ToWorker>{welcome});
  k->link.reset();
  s.strand->drain();
  REQUIRE(s.events->lost.size() == 1);
  CHECK(s.events->lost[0].worker == id);
  CHECK(s.door->links() == 0);
  CHECK(s.door->counters().closed == 1);
}

TEST_CASE("a link that breaks the rules is closed, others live on") {
  Scene s;
  auto good = s.knock();
  good->say(hello(Role::kDecode, 1));
  s.strand->drain();
  auto garbage = s.knock();
  garbage->link->send(Bytes(64, std::byte{0xFF}));
  auto empty = s.knock();
  empty->link->send({});
  auto early = s.knock();
  early->say(to_coordinator::Beat{});
  auto late = s.knock();
  late->say(hello(Role::kDecode, 2));
  late->link->send(Bytes(7, std::byte{1}));
  late->say(to_coordinator::Beat{});  // after the broken frame: not read
  s.strand->drain();
  CHECK(s.door->counters().malformed == 4);
  for (const auto* k : {&garbage, &empty, &early, &late}) CHECK((*k)->closed);
  CHECK_FALSE(good->closed);
  CHECK(s.events->joined.size() == 2);
  REQUIRE(s.events->lost.size() == 1);  // only who had joined can be lost
  CHECK(s.events->lost[0].worker == s.events->joined[1].worker);
  CHECK(s.events->messages.empty());
  CHECK(s.door->links() == 1);
}

TEST_CASE("who says nothing is put out") {
  Scene s;
  auto silent = s.knock();
  auto good = s.knock();
  good->say(hello(Role::kDecode, 1));
  s.strand->advance(kRegisterWithin - 10ms);
  CHECK_FALSE(silent->closed);
  s.strand->advance(1s);
  CHECK(silent->closed);
  CHECK_FALSE(good->closed);
  CHECK(s.door->counters().silent == 1);
  CHECK(s.events->lost.empty());
}

TEST_CASE("a dropped worker still gets what was said before; its loss is not news") {
  Scene s;
  auto k = s.knock();
  k->say(hello(Role::kDecode, 1));
  s.strand->drain();
  const WorkerId id = s.events->joined.at(0).worker;
  s.door->on(SendToWorker{id, to_worker::Rejected{error(Errc::kInvalid, "other model")}});
  s.door->on(DropWorker{id});
  s.door->on(DropWorker{id});
  s.strand->drain();
  REQUIRE(k->got.size() == 1);
  CHECK(std::get<to_worker::Rejected>(k->got[0]).why.message == "other model");
  CHECK(k->closed);
  CHECK(s.events->lost.empty());
}

TEST_CASE("links are limited; a port in use is said") {
  Scene s;
  std::vector<std::unique_ptr<Knocker>> many;
  for (size_t i = 0; i < MeshDoor::kLinksMax; ++i) many.push_back(s.knock());
  auto over = s.knock();
  s.strand->drain();
  CHECK(over->closed);
  CHECK(s.door->counters().turned_away == 1);
  auto second = std::make_shared<MeshDoor>(s.strand);
  auto taken = second->listen(s.network, s.endpoint, Ref<WorkerEvents>(s.strand, s.events));
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == Errc::kUnavailable);
}

}  // namespace headrace::coordinator

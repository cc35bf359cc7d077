#include "worker/mesh_client.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "protocol/codec.h"
#include "tests/worker/worker_fixture.h"

namespace headrace::worker {
namespace {

// Accepts links of workers and says what the test wants.
struct Door {
  explicit Door(sim::SimWorld& world)
      : process(&world.spawn("coordinator")), strand(process->make_strand()) {
    auto opened = process->network().listen(
        sim::HandCoordinator::kAddress, {}, strand, [this, &world](std::unique_ptr<Link> link) {
          accepted.push_back(world.now());
          const std::shared_ptr<Link> l = std::move(link);
          links.push_back(l);
          l->start(
              [this, l = l.get()](const Bytes& frame) {
                const auto m = decode_to_coordinator(frame);
                if (!m) return;
                if (const auto* r = std::get_if<to_coordinator::Register>(&*m)) {
                  incarnations.push_back(r->incarnation);
                  if (answer) l->send(*answer);
                }
              },
              [this](const Status&) { ++closed; });
        });
    listener = std::move(opened).value();
  }
  sim::SimProcess* process;
  std::shared_ptr<Strand> strand;
  std::unique_ptr<Listener> listener;
  std::vector<std::shared_ptr<Link>> links;
  std::vector<Instant> accepted;
  std::vector<Incarnation> incarnations;
  std::optional<Bytes> answer;
  int closed = 0;
};

sim::SimWorker worker_in(sim::SimWorld& world) {
  WorkerOptions o;
  o.name = "w";
  return sim::start_worker(world, o, {}, sim::HandCoordinator::kAddress);
}

Bytes welcome() { return encode(ToWorker(to_worker::Welcome{Term{1}, WorkerId{1}, 250ms})); }

TEST_CASE("it dials until a coordinator is there") {
  sim::SimWorld world;
  const auto w = worker_in(world);
  world.run_for(5s);
  REQUIRE(w.events->size() >= 4);  // back-off: at most 1.5 s apart
  CHECK(w.events->size() <= 12);
  CHECK(w.events->front().find("cannot connect to coordinator:7401") != std::string::npos);
  Door door(world);
  door.answer = welcome();
  world.run_for(2s);
  CHECK(w.events->back() == "joined");
}

TEST_CASE("each connection has a new incarnation; back-off begins anew after a welcome") {
  sim::SimWorld world;
  Door door(world);
  door.answer = welcome();
  const auto w = worker_in(world);
  for (int i = 0; i < 5; ++i) {
    world.run_for(1s);
    REQUIRE(door.links.size() == static_cast<size_t>(i) + 1);
    CHECK(w.events->back() == "joined");
    door.strand->post([&] { door.links.back()->close(); });
  }
  std::sort(door.incarnations.begin(), door.incarnations.end());
  CHECK(std::adjacent_find(door.incarnations.begin(), door.incarnations.end()) ==
        door.incarnations.end());
  CHECK(static_cast<bool>(door.incarnations.front()));
}

TEST_CASE("a rejection is final and told") {
  sim::SimWorld world;
  Door door(world);
  door.answer = encode(ToWorker(to_worker::Rejected{error(Errc::kInvalid, "another model")}));
  const auto w = worker_in(world);
  world.run_for(10s);
  CHECK(w.events->back() == "rejected: another model");
  CHECK(door.links.size() == 1);
  CHECK(door.closed == 1);
}

TEST_CASE("no welcome, silence, and frames that cannot be read: the link is given up") {
  sim::SimWorld world;
  Door door(world);
  const auto w = worker_in(world);
  SUBCASE("no welcome") {
    world.run_for(std::min(WorkerOptions{}.forget_after, MeshClient::kWelcomeDeadline) + 1s);
    CHECK(door.links.size() == 2);
  }
  SUBCASE("silence") {
    door.answer = welcome();
    const Duration most = WorkerOptions{}.forget_after;
    world.run_for(most - 200ms);
    CHECK(door.links.size() == 1);
    world.run_for(600ms);
    CHECK(door.links.size() == 2);
  }
  SUBCASE("junk") {
    door.answer = Bytes(64, std::byte{0xFF});
    world.run_for(500ms);
    CHECK(door.links.size() >= 2);
  }
  CHECK(door.closed >= 1);
  const bool told = std::any_of(w.events->begin(), w.events->end(), [](const std::string& e) {
    return e.find("silent") != std::string::npos || e.find("cannot be read") != std::string::npos;
  });
  CHECK(told);
}

}  // namespace
}  // namespace headrace::worker

#include "worker/nccl_turn.h"

#include <doctest/doctest.h>

#include "tests/worker/nccl_rig.h"

namespace headrace::worker {
namespace {

TEST_CASE("devices that hand over to each other in a ring, all at once, all come through") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    sim::SimWorld world({.seed = seed});
    sim::NcclFabric fabric(world);
    std::vector<std::unique_ptr<NcclSide>> sides;
    std::vector<NcclSide*> all;
    for (uint64_t i = 0; i < 4; ++i) {
      sides.push_back(
          std::make_unique<NcclSide>(world, fabric, std::to_string(i), i + 1, NcclOptions{}));
      all.push_back(sides.back().get());
    }
    std::vector<std::unique_ptr<NcclWay>> ways;
    for (size_t from = 0; from < 4; ++from) {
      for (size_t step = 1; step < 4; ++step) {
        ways.push_back(std::make_unique<NcclWay>(world, *all[from], *all[(from + step) % 4], 12));
        ways.back()->post_all();
      }
    }
    CHECK(NcclWay::run(world, all, [&] {
      return std::all_of(ways.begin(), ways.end(), [](const auto& w) { return w->over(); });
    }));
    for (NcclSide* side : all) CHECK(side->pairs.broken() == 0);
    CHECK(fabric.wrong == "");
  }
}

TEST_CASE("lanes of one pair take turns, batch by batch") {
  sim::SimWorld world({.seed = 5});
  sim::NcclFabric fabric(world);
  NcclSide p(world, fabric, "p", 1, {}), d(world, fabric, "d", 2, {});
  NcclWay one(world, p, d, 12), two(world, p, d, 12);
  one.post_all();
  two.post_all();
  CHECK(NcclWay::run(world, {&p, &d}, [&] { return !two.at_d.moved.empty(); }));
  CHECK(one.at_d.moved.size() < 12);
  CHECK(NcclWay::run(world, {&p, &d}, [&] { return one.over() && two.over(); }));
  CHECK(fabric.connected == 1);
}

TEST_CASE(
    "a move that stands still breaks the pair at both ends; an offer that is not taken, too") {
  for (const bool launched : {true, false}) {
    sim::SimWorld world({.seed = 5});
    sim::NcclFabric fabric(world);
    NcclSide p(world, fabric, "p", 1, {}), d(world, fabric, "d", 2, {});
    NcclWay way(world, p, d, 2);
    p.driver.faults.hang_moves = launched;
    way.post_all();
    if (!launched) {
      CHECK(NcclWay::run(world, {&p, &d}, [&] { return fabric.connected > 0; }));
      way.deaf = true;  // Go does not come
    }
    CHECK(NcclWay::run(
        world, {&p, &d}, [&] { return !way.at_p.failed.ok(); }, 5s));
    CHECK(way.at_p.failed.code == Errc::kDeadline);
    way.p->close(LaneEnding::kCut);
    way.d->close(LaneEnding::kCut);
    p.driver.faults = {};
    CHECK(NcclWay::run(world, {&p, &d}, [&] {
      return p.driver.communicators() == 0 && d.driver.communicators() == 0;
    }));
    CHECK(way.d->state() == LaneState::kQuiet);
    CHECK(p.pairs.offer(d.incarnation).kind == LaneKind::kTcp);  // for a while
  }
}

TEST_CASE("an offer beyond what was granted is refused") {
  sim::SimWorld world({.seed = 5});
  sim::NcclFabric fabric(world);
  NcclSide p(world, fabric, "p", 1, {}), d(world, fabric, "d", 2, {});
  NcclWay way(world, p, d, 1);
  CHECK(NcclWay::run(world, {&p, &d}, [&] { return fabric.connected > 0; }));
  world.run_for(100ms);
  const auto offer = [&](uint32_t batch, std::vector<uint32_t> sizes) {
    return way.d->heard(encode_nccl(nccl_note::Offer{1, batch, std::move(sizes)})).code;
  };
  CHECK(offer(1, {8}) == Errc::kInvalid);  // nothing is posted
  way.d->post({0, way.room[0]});
  CHECK(offer(2, {8}) == Errc::kInvalid);     // not the next
  CHECK(offer(1, {65}) == Errc::kInvalid);    // longer than the room
  CHECK(offer(1, {8, 8}) == Errc::kInvalid);  // more than are there
  CHECK(way.p->heard(encode_nccl(nccl_note::Go{1, 1})).code == Errc::kInvalid);  // not offered
}

}  // namespace
}  // namespace headrace::worker

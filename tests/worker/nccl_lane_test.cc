#include "worker/nccl_lane.h"

#include <doctest/doctest.h>

#include "tests/worker/nccl_rig.h"

namespace headrace::worker {
namespace {

struct Two {
  sim::SimWorld world{{.seed = 3}};
  sim::NcclFabric fabric{world};
  NcclSide p{world, fabric, "p", 1, {}};
  NcclSide d{world, fabric, "d", 2, {}};
  template <class Done>
  bool run(const Done& done, Duration most = 30s) {
    return NcclWay::run(world, {&p, &d}, done, most);
  }
};

TEST_CASE("slots arrive in order, whole, and are counted") {
  Two two;
  NcclWay way(two.world, two.p, two.d, 7);
  REQUIRE(way.p);
  way.post_all();
  CHECK(two.run([&] { return way.over() && way.at_p.moved.size() == 7; }));
  for (uint32_t i = 0; i < 7; ++i) CHECK(way.at_d.moved[i] == std::pair<uint32_t, size_t>(i, 64));
  CHECK(way.at_p.moved == way.at_d.moved);
  for (const auto* lane : {way.p.get(), way.d.get()}) {
    CHECK(lane->counters().bytes == 7 * 64);
    CHECK(lane->counters().slots == 7);
    CHECK(lane->counters().waited > 0ms);  // for the communicator
    CHECK(lane->counters().on_wire > 0ms);
  }
  CHECK(way.p->close(LaneEnding::kOver) == LaneState::kQuiet);
  CHECK(way.d->close(LaneEnding::kOver) == LaneState::kQuiet);
  CHECK(two.fabric.wrong == "");
}

TEST_CASE("a slot that is shorter than the room for it says so") {
  Two two;
  NcclWay way(two.world, two.p, two.d, 1);
  way.d->post({9, way.room[0]});
  way.p->post({5, std::span(way.memory[0]).first(10)});
  CHECK(two.run([&] { return !way.at_d.moved.empty(); }));
  CHECK(way.at_d.moved[0] == std::pair<uint32_t, size_t>(9, 10));
}

TEST_CASE("closed while a slot is under way: busy until it has moved, then quiet, once") {
  Two two;
  NcclWay way(two.world, two.p, two.d, 4);
  two.p.driver.faults.hang_moves = true;
  way.post_all();
  CHECK(two.run([&] { return two.d.driver.launched() > 0 && two.p.driver.launched() > 0; }, 900ms));
  CHECK(way.d->close(LaneEnding::kOver) == LaneState::kBusy);
  CHECK(way.p->close(LaneEnding::kOver) == LaneState::kBusy);
  CHECK(!way.at_d.quiet);
  two.p.driver.faults = {};
  two.p.driver.nudge();
  CHECK(two.run([&] { return way.at_d.quiet && way.at_p.quiet; }, 900ms));
  CHECK(way.at_d.moved.empty());  // closed: nobody is told
  CHECK(way.d->state() == LaneState::kQuiet);
  CHECK(two.p.pairs.broken() == 0);
}

TEST_CASE("an end of a lane that failed hears of it once and posts in vain") {
  Two two;
  two.p.driver.faults.fail_init = true;
  NcclWay way(two.world, two.p, two.d, 2);
  way.post_all();
  CHECK(two.run([&] { return !way.at_p.failed.ok() && !way.at_d.failed.ok(); }));
  way.p->post({0, way.memory[0]});
  CHECK(way.p->close(LaneEnding::kOver) == LaneState::kQuiet);
  CHECK(way.at_p.moved.empty());
}

TEST_CASE("bytes that are no note, and notes of the wrong end, are refused") {
  Two two;
  NcclWay way(two.world, two.p, two.d, 1);
  CHECK(way.p->heard(Bytes(3)).code == Errc::kInvalid);
  CHECK(way.p->heard(encode_nccl(nccl_note::Join{1})).code == Errc::kInvalid);
  CHECK(way.d->heard(encode_nccl(nccl_note::Ready{1})).code == Errc::kInvalid);
  CHECK(way.d->heard(encode_nccl(nccl_note::Go{1, 1})).code == Errc::kInvalid);
  CHECK(way.p->heard(encode_nccl(nccl_note::Credit{kLaneSlotsMax + 1})).code == Errc::kInvalid);
}

}  // namespace
}  // namespace headrace::worker

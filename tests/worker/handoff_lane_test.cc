#include "worker/handoff_lane.h"

#include <doctest/doctest.h>

#include "tests/worker/fake_lanes.h"
#include "tests/worker/handoff_rig.h"

namespace headrace::worker {
namespace {

// One end with two slots posted.
struct EndRig {
  EndRig() {
    HandoffLane::Host host;
    host.tell = [](const Bytes&) {};
    host.moved = [this](const BlockStage::SlotPtr& slot, size_t bytes) {
      moved.emplace_back(slot->index(), bytes);
    };
    host.failed = [](const Status&) {};
    host.quiet = [this] { ++quiet; };
    lane = std::make_unique<HandoffLane>(source, LaneEnd::kDecode, Incarnation{1, 2}, source->terms,
                                         std::move(host));
    for (int i = 0; i < 2; ++i) rig.d_strand->post([this] { lend(); });
    rig.world.run_for(10ms);
  }
  void lend() {
    rig.d_stage->lend(kernels::CopyWay::kIn,
                      [this](const BlockStage::SlotPtr& slot) { lane->post(slot, 1000); });
  }
  size_t free_slots() { return rig.free_slots(*rig.d_strand, *rig.d_stage); }
  FakeLane& fake() { return *source->lanes[0]; }

  HandoffRig rig{Blocks::kStaged};
  std::shared_ptr<FakeLanes> source = std::make_shared<FakeLanes>();
  std::vector<std::pair<uint32_t, size_t>> moved;
  int quiet = 0;
  std::unique_ptr<HandoffLane> lane;
};

TEST_CASE("a slot is free again when its bytes have moved") {
  EndRig r;
  CHECK(r.lane->posted() == 2);
  CHECK(r.free_slots() == kernels::kCopySlots - 2);
  const LaneSlot slot = r.fake().posted.front();
  CHECK(slot.memory.size() == 1000);
  r.fake().host.moved(slot.index, 700);
  CHECK(r.moved == std::vector{std::pair(slot.index, size_t{700})});
  CHECK(r.lane->posted() == 1);
  CHECK(r.free_slots() == kernels::kCopySlots - 1);
}

TEST_CASE("what did not move is free when the lane is quiet, and never if it is lost") {
  SUBCASE("quiet at once") {
    EndRig r;
    CHECK(r.lane->end(LaneEnding::kOver));
    CHECK(r.free_slots() == kernels::kCopySlots);
    CHECK(r.quiet == 0);
  }
  SUBCASE("quiet later") {
    EndRig r;
    r.fake().state_at_end = LaneState::kBusy;
    CHECK_FALSE(r.lane->end(LaneEnding::kOver));
    CHECK(r.free_slots() == kernels::kCopySlots - 2);
    r.fake().host.quiet();
    CHECK(r.quiet == 1);
    CHECK(r.free_slots() == kernels::kCopySlots);
  }
  SUBCASE("lost at once") {
    EndRig r;
    r.fake().state_at_end = LaneState::kQuarantine;
    CHECK(r.lane->end(LaneEnding::kOver));
    r.lane = nullptr;
    CHECK(r.free_slots() == kernels::kCopySlots - 2);
  }
  SUBCASE("lost later") {
    EndRig r;
    r.fake().state_at_end = LaneState::kBusy;
    CHECK_FALSE(r.lane->end(LaneEnding::kCut));
    r.fake().host.lost(error(Errc::kDeadline, "for ever"));
    CHECK(r.quiet == 1);
    CHECK(r.free_slots() == kernels::kCopySlots - 2);
  }
}

// P's side: a sender that is stopped while its lane is busy.
TEST_CASE("a sender has stopped once its lane is quiet") {
  auto p_lanes = std::make_shared<FakeLanes>(), d_lanes = std::make_shared<FakeLanes>();
  HandoffRig rig(Blocks::kStaged, p_lanes, d_lanes);
  const ReceiveGrant g = rig.grant(64);
  rig.receiver->expect(g);
  rig.dial(rig.job(g));
  rig.push({0, 1, 2, 3}, false);
  rig.world.run_for(100ms);
  REQUIRE(p_lanes->lanes.size() == 1);
  FakeLane& p = *p_lanes->lanes[0];
  p.state_at_end = LaneState::kBusy;
  int stopped = 0;
  bool at_once = true;
  rig.p_strand->post([&] { at_once = rig.sender->stop([&] { ++stopped; }); });
  rig.world.run_for(100ms);
  CHECK_FALSE(at_once);
  CHECK(stopped == 0);
  CHECK(rig.ended.empty());  // the channel is open: D hears nothing yet
  p.host.quiet();
  CHECK(stopped == 1);
  rig.world.run_for(100ms);
  CHECK(rig.ended.at(g.transfer).code == Errc::kDisconnected);
  CHECK_FALSE(rig.done.has_value());
}

TEST_CASE("with another end that has no lanes, or blocks of the host, all goes by slices") {
  for (const bool staged : {true, false}) {
    auto p_lanes = std::make_shared<FakeLanes>();
    HandoffRig rig(staged ? Blocks::kStaged : Blocks::kHost, p_lanes);
    const ReceiveGrant g = rig.grant(64);
    rig.receiver->expect(g);
    rig.dial(rig.job(g));
    rig.push({0, 1, 2, 3}, true);
    rig.world.run_for(200ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->ok());
    CHECK(p_lanes->lanes.empty());
    for (uint32_t b = 0; b < 4; ++b) CHECK(rig.arrived(b, 2 * b));
  }
}

}  // namespace
}  // namespace headrace::worker

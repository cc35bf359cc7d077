// What comes by a lane, and what a lane's end leaves behind at D: worker/handoff_receiver_lane.cc.
#include <doctest/doctest.h>

#include "tests/worker/fake_lanes.h"
#include "tests/worker/handoff_rig.h"
#include "tests/worker/raw_sender.h"

namespace headrace::worker {
namespace {

// Four blocks from P to D, announced and posted, nothing moved yet; slots take three.
struct LaneRig {
  LaneRig() {
    rig.receiver->expect(g);
    rig.dial(rig.job(g));
    rig.push({0, 1, 2, 3}, true);
    rig.world.run_for(100ms);
    REQUIRE(p_lanes->lanes.size() == 1);
    REQUIRE(d_lanes->lanes.size() == 1);
    REQUIRE(p().posted.size() == 2);
    REQUIRE(d().posted.size() == 2);
  }
  FakeLane& p() { return *p_lanes->lanes[0]; }
  FakeLane& d() { return *d_lanes->lanes[0]; }
  // Moves what can be moved, until nothing can.
  void move(const std::function<void(LaneSlot&)>& change = {}) {
    for (bool more = true; more; rig.world.run_for(20ms)) more = shift(p(), d(), change);
  }
  Status outcome() {
    rig.world.run_for(100ms);
    REQUIRE(rig.ended.contains(g.transfer));
    return rig.ended.at(g.transfer);
  }
  size_t free_slots() { return rig.free_slots(*rig.d_strand, *rig.d_stage); }

  std::shared_ptr<FakeLanes> p_lanes = std::make_shared<FakeLanes>();
  std::shared_ptr<FakeLanes> d_lanes = std::make_shared<FakeLanes>();
  HandoffRig rig{Blocks::kStaged, p_lanes, d_lanes};
  const ReceiveGrant g = rig.grant(64);
};

TEST_CASE("the end of a chunk, and the commit, wait for the slots that they overtook") {
  LaneRig r;
  CHECK(r.rig.ended.empty());
  REQUIRE(shift(r.p(), r.d()));
  r.rig.world.run_for(100ms);
  CHECK(r.rig.ended.empty());
  r.move();
  CHECK(r.outcome().ok());
  REQUIRE(r.rig.done.has_value());
  CHECK(r.rig.done->ok());
  for (uint32_t b = 0; b < 4; ++b) CHECK(r.rig.arrived(b, 2 * b));
  CHECK(r.rig.receiver->bytes_received() == 4 * HandoffRig::kBlockBytes);
  CHECK(r.free_slots() == kernels::kCopySlots);
}

TEST_CASE("what the lane does of its limit is measured while its slots are under way") {
  LaneRig r;
  r.d().counters.on_wire = 500ms;
  REQUIRE(shift(r.p(), r.d()));  // three blocks
  r.rig.world.run_for(100ms);
  const LinkUse whole = r.rig.receiver->link(LaneKind::kNccl);
  CHECK(whole.limit == doctest::Approx(6000));
  CHECK(whole.share == doctest::Approx(1));
  r.d().counters.on_wire += 500ms;
  REQUIRE(shift(r.p(), r.d()));  // one
  r.rig.world.run_for(100ms);
  CHECK(r.rig.receiver->link(LaneKind::kNccl).share == doctest::Approx(4000 / 6000.0));
  CHECK(r.rig.receiver->link(LaneKind::kTcp) == LinkUse{});
}

TEST_CASE("a slot that holds no whole blocks, or too many, is refused") {
  std::vector<std::byte> much(5 * HandoffRig::kBlockBytes);
  for (const size_t bytes : {size_t{0}, size_t{999}, size_t{1001}, much.size()}) {
    CAPTURE(bytes);
    LaneRig r;
    shift(r.p(), r.d(), [&](LaneSlot& slot) { slot.memory = std::span(much).first(bytes); });
    CHECK(r.outcome().message.find("a slot of " + std::to_string(bytes)) != std::string::npos);
    CHECK(r.d().endings == std::vector{LaneEnding::kCorrupt});
    CHECK(!r.rig.done->ok());
  }
}

TEST_CASE("a bit flipped on the lane is found, and the lane hears of it") {
  LaneRig r;
  r.move([](LaneSlot& slot) { slot.memory[77] ^= std::byte{4}; });
  CHECK(r.outcome().message.find("CRC") != std::string::npos);
  CHECK(r.d().endings == std::vector{LaneEnding::kCorrupt});
}

TEST_CASE("a broken lane ends the hand-off at both ends") {
  LaneRig r;
  r.d().host.failed(error(Errc::kDeadline, "it hangs"));
  CHECK(r.outcome().code == Errc::kDisconnected);
  REQUIRE(r.rig.done.has_value());
  CHECK(r.rig.done->message.find("it hangs") != std::string::npos);
  CHECK(r.free_slots() == kernels::kCopySlots);
}

TEST_CASE("a lane that is not quiet keeps its channel and slots, and nobody waits for it") {
  LaneRig r;
  r.d().state_at_end = r.p().state_at_end = LaneState::kBusy;
  r.d().host.failed(error(Errc::kDeadline, "it hangs"));
  CHECK(!r.outcome().ok());
  CHECK(r.rig.receiver->forget(r.g.transfer));
  CHECK(r.free_slots() == kernels::kCopySlots - 2);
  CHECK(!r.rig.done.has_value());  // P waits for its lane
  // Notes go on.
  const size_t before = r.p().notes.size();
  r.d().host.tell(Bytes(3));
  r.p().host.tell(Bytes(4));
  r.rig.world.run_for(50ms);
  CHECK(r.p().notes.size() == before + 1);
  CHECK(r.d().notes.back().size() == 4);
  FakeLane& d = r.d();
  SUBCASE("quiet") {
    d.host.quiet();
    CHECK(r.free_slots() == kernels::kCopySlots);
  }
  SUBCASE("lost") {
    d.host.lost(error(Errc::kDeadline, "for ever"));
    CHECK(r.free_slots() == kernels::kCopySlots - 2);
  }
  // D's end of the channel is closed: P's lane hears no note any more.
  r.rig.world.run_for(50ms);
  CHECK(r.p().endings == std::vector{LaneEnding::kOver, LaneEnding::kCut});
  r.p().host.quiet();
  r.rig.world.run_for(50ms);
  REQUIRE(r.rig.done.has_value());
  CHECK(!r.rig.done->ok());
}

TEST_CASE("quiet, told just as the channel is cut, ends it once") {
  LaneRig r;
  r.rig.d_copies.hang(true);  // what it holds keeps the channel in memory
  REQUIRE(shift(r.p(), r.d()));
  r.rig.world.run_for(20ms);
  r.d().state_at_end = r.p().state_at_end = LaneState::kBusy;
  r.d().host.failed(error(Errc::kDeadline, "it hangs"));
  CHECK(!r.outcome().ok());
  r.d().state_at_end = LaneState::kQuiet;
  int told = 0;
  r.d().on_close = [&] {
    r.rig.d_strand->post([&] {
      ++told;
      r.d().host.quiet();
    });
  };
  r.p().host.quiet();  // P closes its end
  r.rig.world.run_for(50ms);
  CHECK(told == 1);
  r.rig.d_copies.hang(false);
  r.rig.world.run_for(50ms);
  CHECK(r.free_slots() == kernels::kCopySlots);
}

// A P that says what the test wants, to a D whose lane is there.
struct LyingRig {
  LyingRig() {
    rig.receiver->expect(g);
    sender.hello(g, [&](handoff::Hello& h) { h.lane = d_lanes->terms; });
    REQUIRE(sender.acked);
    REQUIRE(d_lanes->lanes.size() == 1);
  }
  FakeLane& d() { return *d_lanes->lanes[0]; }
  // Says so each 200 ms, until it is over; seconds that it took.
  double vouch(uint32_t slots, double most) {
    const Instant from = rig.world.now();
    const auto passed = [&] {
      return std::chrono::duration<double>(rig.world.now() - from).count();
    };
    while (rig.ended.empty() && passed() < most) {
      sender.send(handoff::Alive{slots});
      rig.world.run_for(190ms);
    }
    return passed();
  }
  size_t free_slots() { return rig.free_slots(*rig.d_strand, *rig.d_stage); }

  std::shared_ptr<FakeLanes> d_lanes = std::make_shared<FakeLanes>();
  HandoffRig rig{Blocks::kStaged, nullptr, d_lanes};
  const ReceiveGrant g = rig.grant(64);
  RawSender sender{rig};
};

TEST_CASE(
    "a slot that is said to be posted and is not is given up within 1.5 s of silence about it") {
  LyingRig r;
  CHECK(r.vouch(0, 4) >= 4);  // nothing is due: it computes
  r.sender.send(handoff::SlotPosted{});
  r.sender.send(handoff::SlotPosted{});
  CHECK(r.free_slots() == kernels::kCopySlots - 2);
  const double took = r.vouch(1, 10);  // of two
  CHECK(took >= 1.3);
  CHECK(took < 1.9);
  CHECK(r.rig.ended.at(r.g.transfer).code == Errc::kDeadline);
  CHECK(r.rig.ended.at(r.g.transfer).message.find("announced") != std::string::npos);
  CHECK(r.sender.verdict->code == Errc::kDeadline);
  CHECK(r.d().endings == std::vector{LaneEnding::kStalled});
  CHECK(r.free_slots() == kernels::kCopySlots);
}

TEST_CASE("one that is vouched for and does not come is given up when P itself would") {
  LyingRig r;
  r.sender.send(handoff::SlotPosted{});
  const double took = r.vouch(1, 10);
  CHECK(took >= 4.8);
  CHECK(took < 5.4);
  CHECK(r.rig.ended.at(r.g.transfer).code == Errc::kDeadline);
  CHECK(r.d().endings == std::vector{LaneEnding::kStalled});
  CHECK(r.free_slots() == kernels::kCopySlots);
}

TEST_CASE("while all slots of D are lent to others, P is not blamed for them") {
  LyingRig r;
  std::vector<BlockStage::SlotPtr> others;
  r.rig.d_strand->post([&] {
    for (uint32_t i = 0; i < kernels::kCopySlots; ++i)
      r.rig.d_stage->lend(kernels::CopyWay::kIn, [&](const auto& slot) { others.push_back(slot); });
  });
  r.rig.world.run_for(10ms);
  REQUIRE(others.size() == kernels::kCopySlots);
  r.sender.send(handoff::SlotPosted{});
  CHECK(r.vouch(1, 8) >= 8);
  r.rig.d_strand->post([&] { others.clear(); });  // the lane gets one: from here on it counts
  const double took = r.vouch(1, 10);
  CHECK(took >= 4.8);
  CHECK(took < 5.4);
}

TEST_CASE("each slot that comes gives those after it their time") {
  LyingRig r;
  for (int i = 0; i < 4; ++i) r.sender.send(handoff::SlotPosted{});
  for (uint32_t left = 4; left-- > 1;) {
    CHECK(r.vouch(left + 1, 4) >= 4);
    const LaneSlot slot = r.d().posted.front();
    r.d().posted.pop_front();
    r.d().host.moved(slot.index, HandoffRig::kBlockBytes);
  }
  CHECK(r.rig.ended.empty());
  CHECK(r.vouch(0, 10) < 1.9);
}

TEST_CASE("more slots than blocks that have not come are refused") {
  LyingRig r;
  for (int i = 0; i < 4; ++i) r.sender.send(handoff::SlotPosted{});
  CHECK(r.rig.ended.empty());
  r.sender.send(handoff::SlotPosted{});
  REQUIRE(r.rig.ended.contains(r.g.transfer));
  CHECK(r.rig.ended.at(r.g.transfer).message.find("more slots than blocks") != std::string::npos);
  CHECK(r.free_slots() == kernels::kCopySlots);
}

TEST_CASE("a sender vouches for what it has posted, as long as it waits") {
  LaneRig r;
  r.rig.world.run_for(4500ms);
  CHECK(r.rig.ended.empty());
  r.move();
  CHECK(r.outcome().ok());
}

TEST_CASE("what D does not read does not pile up at P") {
  LaneRig r;
  const size_t most = r.rig.options.window_bytes + 2 * kHandoffFrameMax;
  for (size_t n = 0; n < most; n += kLaneNoteMax) r.p().host.tell(Bytes(kLaneNoteMax));
  r.rig.world.run_for(50ms);
  REQUIRE(r.rig.done.has_value());
  CHECK(r.rig.done->message.find("does not keep up") != std::string::npos);
}

TEST_CASE("what P does not read does not pile up at D") {
  LyingRig r;
  for (int i = 0; i < 1000; ++i) r.d().host.tell(Bytes(kLaneNoteMax));
  r.rig.world.run_for(50ms);
  REQUIRE(r.rig.ended.contains(r.g.transfer));
  CHECK(r.rig.ended.at(r.g.transfer).message.find("does not keep up") != std::string::npos);
}

}  // namespace
}  // namespace headrace::worker

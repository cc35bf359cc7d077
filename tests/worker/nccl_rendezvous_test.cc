#include <doctest/doctest.h>

#include "tests/worker/nccl_rig.h"

// worker/nccl_rendezvous.cc
namespace headrace::worker {
namespace {

struct Two {
  explicit Two(NcclOptions options = {})
      : p{world, fabric, "p", 1, options}, d{world, fabric, "d", 2, options} {}
  sim::SimWorld world{{.seed = 3}};
  sim::NcclFabric fabric{world};
  NcclSide p, d;
  template <class Done>
  bool run(const Done& done, Duration most = 30s) {
    return NcclWay::run(world, {&p, &d}, done, most);
  }
};

TEST_CASE("no id is minted before the peer has said that it is ready") {
  Two two;
  NcclWay way(two.world, two.p, two.d);
  way.d = nullptr;  // and it never does
  CHECK(two.run([&] { return !way.at_p.failed.ok(); }));
  CHECK(way.at_p.failed.code == Errc::kDeadline);
  CHECK(two.fabric.minted == 0);
}

TEST_CASE("one communicator serves all lanes of a pair, also later ones") {
  Two two;
  for (int i = 0; i < 3; ++i) {
    NcclWay one(two.world, two.p, two.d), other(two.world, two.p, two.d);
    one.post_all();
    other.post_all();
    CHECK(two.run([&] { return one.over() && other.over(); }));
  }
  CHECK(two.fabric.minted == 1);
  CHECK(two.p.pairs.unused_ids() == 0);
}

TEST_CASE("an init that hangs ends in time at both ends, and its id counts as lost") {
  for (const bool at_p : {true, false}) {
    Two two;
    (at_p ? two.p : two.d).driver.faults.hang_init = true;
    NcclWay way(two.world, two.p, two.d);
    way.post_all();
    CHECK(two.run([&] { return !way.at_p.failed.ok() && !way.at_d.failed.ok(); }, 16s));
    CHECK(
        two.run([&] { return two.p.driver.communicators() + two.d.driver.communicators() == 0; }));
    CHECK(two.p.pairs.unused_ids() == 1);
    CHECK(two.p.driver.unused_ids() == 1);
  }
}

TEST_CASE("an end that has closed an idle communicator is met anew, and nobody fails") {
  for (const bool at_p : {true, false}) {
    Two two({.idle = 1s});
    {
      NcclWay way(two.world, two.p, two.d);
      way.post_all();
      CHECK(two.run([&] { return way.over(); }));
    }
    NcclSide& side = at_p ? two.p : two.d;
    CHECK(NcclWay::run(two.world, {&side}, [&] { return side.driver.communicators() == 0; }));
    NcclWay way(two.world, two.p, two.d);
    way.post_all();
    CHECK(two.run([&] { return way.over(); }));
    CHECK(two.fabric.connected == 2);
    CHECK(way.at_p.failed.ok());
    CHECK(two.fabric.wrong == "");
  }
}

TEST_CASE("notes of an older or unknown communicator change nothing") {
  Two two;
  NcclWay way(two.world, two.p, two.d);
  CHECK(two.run([&] { return two.fabric.connected > 0; }));
  two.world.run_for(1s);
  for (const uint32_t epoch : {7u, 1000u}) {
    CHECK(way.p->heard(encode_nccl(nccl_note::Ready{epoch})).ok());
    CHECK(way.p->heard(encode_nccl(nccl_note::Broken{epoch})).ok());
    CHECK(way.d->heard(encode_nccl(nccl_note::Id{epoch, {}})).ok());
    CHECK(way.d->heard(encode_nccl(nccl_note::Broken{epoch})).ok());
  }
  way.post_all();
  CHECK(two.run([&] { return way.over(); }));
}

TEST_CASE("what one end aborts the other aborts, too") {
  Two two;
  NcclWay way(two.world, two.p, two.d);
  way.post_all();
  CHECK(two.run([&] { return way.over(); }));
  way.d->close(LaneEnding::kCorrupt);
  CHECK(two.run([&] { return !way.at_p.failed.ok(); }));
  CHECK(two.run([&] { return two.p.driver.communicators() + two.d.driver.communicators() == 0; }));
}

TEST_CASE("whose slots did not come gets tcp for a while, and its other hand-offs go on") {
  Two two;
  NcclWay way(two.world, two.p, two.d), other(two.world, two.p, two.d);
  way.post_all();
  CHECK(two.run([&] { return way.over(); }));
  CHECK(way.d->close(LaneEnding::kStalled) == LaneState::kQuiet);
  const auto answer = [&](std::string* why) {
    return two.d.pairs.answer(two.p.incarnation, two.p.pairs.offer(two.d.incarnation), why).kind;
  };
  std::string why;
  CHECK(answer(&why) == LaneKind::kTcp);
  CHECK(why.find("did not come") != std::string::npos);
  other.post_all();
  CHECK(two.run([&] { return other.over(); }));
  two.world.run_for(two.d.pairs.options().shun);
  CHECK(answer(&why) == LaneKind::kNccl);
}

TEST_CASE("while the library hangs making an id, nobody waits for another") {
  Two two;
  NcclSide e(two.world, two.fabric, "e", 3, {});
  two.p.driver.faults.hang_mint = true;
  NcclWay way(two.world, two.p, two.d);
  way.post_all();
  CHECK(two.run([&] { return !way.at_p.failed.ok(); }));
  two.world.run_for(100ms);  // it was asked for a little later than Ready was waited for
  std::string why;
  CHECK(two.p.pairs.offer(e.incarnation, &why).kind == LaneKind::kTcp);
  CHECK(why.find("makes no id") != std::string::npos);
  CHECK(two.p.pairs.health().ok());
  two.p.driver.faults.hang_mint = false;
  two.p.driver.nudge();
  two.world.run_for(100ms);
  CHECK(two.p.pairs.offer(e.incarnation, &why).kind == LaneKind::kNccl);
}

}  // namespace
}  // namespace headrace::worker

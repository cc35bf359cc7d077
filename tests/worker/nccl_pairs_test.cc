#include "worker/nccl_pairs.h"

#include <doctest/doctest.h>

#include "tests/worker/nccl_rig.h"

namespace headrace::worker {
namespace {

struct World {
  sim::SimWorld world{{.seed = 3}};
  sim::NcclFabric fabric{world};
};

TEST_CASE("a lane is offered and answered where both can and may") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {.host = 5});
  NcclSide d(w.world, w.fabric, "d", 2, {.host = 5});
  NcclSide far(w.world, w.fabric, "far", 3, {.host = 6});
  NcclSide trusting(w.world, w.fabric, "trusting", 4, {.trust_links = true, .host = 6});
  NcclSide other(w.world, w.fabric, "other", 5, {.host = 5}, 22800);
  NcclSide none(w.world, w.fabric, "none", 6, {.host = 5}, 0);
  const LaneTerms offered = p.pairs.offer(d.incarnation);
  REQUIRE(offered.kind == LaneKind::kNccl);
  const auto answer = [&](NcclSide& side, std::string* why) {
    return side.pairs.answer(p.incarnation, offered, why).kind;
  };
  std::string why;
  CHECK(answer(d, &why) == LaneKind::kNccl);
  CHECK(answer(far, &why) == LaneKind::kTcp);
  CHECK(why.find("trusted") != std::string::npos);
  CHECK(answer(trusting, &why) == LaneKind::kNccl);
  CHECK(answer(other, &why) == LaneKind::kTcp);
  CHECK(why.find("22809") != std::string::npos);
  CHECK(answer(none, &why) == LaneKind::kTcp);
  CHECK(answer(p, &why) == LaneKind::kTcp);  // ourselves
  // P looks, too.
  CHECK(p.pairs.agree(offered, d.pairs.answer(p.incarnation, offered)).ok());
  CHECK(p.pairs.agree(offered, {}).ok());
  CHECK(!p.pairs.agree(offered, trusting.pairs.answer(p.incarnation, offered)).ok());
  CHECK(!p.pairs.agree({}, offered).ok());
  CHECK(none.pairs.offer(d.incarnation, &why).kind == LaneKind::kTcp);
}

TEST_CASE("slots of absurd sizes are not agreed on") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {}), d(w.world, w.fabric, "d", 2, {});
  for (const uint32_t bytes : {0u, kLaneSlotMin - 1, kLaneSlotMax + 1, ~0u}) {
    LaneTerms terms = p.pairs.offer(d.incarnation);
    terms.slot_bytes = bytes;
    CHECK(d.pairs.answer(p.incarnation, terms).kind == LaneKind::kTcp);
    CHECK(!p.pairs.agree(p.pairs.offer(d.incarnation), terms).ok());
  }
}

TEST_CASE("past so many communicators the one idle for longest ends; none idle: tcp") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {.pairs_max = 2});
  std::vector<std::unique_ptr<NcclSide>> ds;
  std::vector<NcclSide*> all = {&p};
  for (uint64_t i = 0; i < 3; ++i) {
    ds.push_back(std::make_unique<NcclSide>(w.world, w.fabric, "d" + std::to_string(i), 10 + i,
                                            NcclOptions{}));
    all.push_back(ds.back().get());
  }
  for (auto& d : ds) {
    NcclWay way(w.world, p, *d);
    REQUIRE(way.p);
    way.post_all();
    CHECK(NcclWay::run(w.world, all, [&] { return way.over(); }));
    CHECK(p.driver.communicators() <= 2);
  }
  NcclWay one(w.world, p, *ds[1]), two(w.world, p, *ds[2]);
  CHECK(p.pairs.offer(ds[0]->incarnation).kind == LaneKind::kTcp);
  CHECK(p.pairs.offer(ds[1]->incarnation).kind == LaneKind::kNccl);
  CHECK(p.pairs.health().ok());
}

TEST_CASE("after so many ids that nobody used: tcp alone, and start me again") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {.unused_ids_max = 3, .shun = 0s});
  NcclSide d(w.world, w.fabric, "d", 2, {.shun = 0s});
  d.driver.faults.fail_init = true;
  for (int i = 0; i < 3; ++i) {
    CHECK(p.pairs.health().ok());
    NcclWay way(w.world, p, d);
    CHECK(NcclWay::run(w.world, {&p, &d}, [&] { return !way.at_p.failed.ok(); }));
    CHECK(NcclWay::run(w.world, {&p, &d}, [&] { return p.driver.communicators() == 0; }));
  }
  CHECK(p.pairs.unused_ids() == 3);
  CHECK(!p.pairs.health().ok());
  CHECK(p.pairs.offer(d.incarnation).kind == LaneKind::kTcp);
}

TEST_CASE("an abort that hangs: slots lost, process sick, all lanes fail") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {}), d(w.world, w.fabric, "d", 2, {});
  NcclSide e(w.world, w.fabric, "e", 3, {});
  NcclWay way(w.world, p, d), other(w.world, p, e);
  p.driver.faults.hang_moves = p.driver.faults.hang_abort = true;
  way.post_all();
  CHECK(NcclWay::run(w.world, {&p, &d, &e}, [&] { return !way.at_p.failed.ok(); }));
  CHECK(way.p->close(LaneEnding::kOver) == LaneState::kBusy);
  CHECK(NcclWay::run(
      w.world, {&p, &d, &e}, [&] { return way.at_p.lost; }, 8s));
  CHECK(way.p->state() == LaneState::kQuarantine);
  CHECK(!way.at_p.quiet);
  CHECK(!p.pairs.health().ok());
  CHECK(NcclWay::run(
      w.world, {&p, &d, &e}, [&] { return !other.at_p.failed.ok(); }, 1s));
  CHECK(p.pairs.offer(e.incarnation).kind == LaneKind::kTcp);
  // The other end is not stuck with it.
  way.d->close(LaneEnding::kOver);
  CHECK(NcclWay::run(w.world, {&p, &d, &e}, [&] { return d.driver.communicators() == 0; }));
  CHECK(d.pairs.health().ok());
}

TEST_CASE(
    "one that fails where nothing was under way costs the communicator alone, so many times") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {}), d(w.world, w.fabric, "d", 2, {});
  d.driver.faults.fail_abort = true;
  d.driver.faults.fail_init = true;
  for (uint32_t i = 0; i <= kNcclLeakedMax; ++i) {
    CHECK(d.pairs.health().ok());
    NcclWay way(w.world, p, d);
    way.post_all();
    CHECK(NcclWay::run(w.world, {&p, &d}, [&] { return !way.at_d.failed.ok(); }));
    way.d->close(LaneEnding::kOver);
    way.p->close(LaneEnding::kOver);
    w.world.run_for(45s);  // its peer gets lanes again
    CHECK(way.d->state() == LaneState::kQuiet);
    CHECK(d.pairs.pairs() == (i < kNcclLeakedMax ? 0 : 1));
  }
  CHECK(!d.pairs.health().ok());
}

TEST_CASE("an abort that fails proves nothing: slots lost, process sick") {
  World w;
  NcclSide p(w.world, w.fabric, "p", 1, {}), d(w.world, w.fabric, "d", 2, {});
  NcclWay way(w.world, p, d);
  d.driver.faults.hang_moves = d.driver.faults.fail_abort = true;
  way.post_all();
  CHECK(NcclWay::run(w.world, {&p, &d}, [&] { return !way.at_d.failed.ok(); }));
  way.d->close(LaneEnding::kOver);
  w.world.run_for(50ms);
  CHECK(way.d->state() == LaneState::kQuarantine);
  CHECK(!way.at_d.quiet);
  CHECK(d.pairs.health().message.find("cannot be aborted") != std::string::npos);
  CHECK(d.pairs.offer(p.incarnation).kind == LaneKind::kTcp);
}

}  // namespace
}  // namespace headrace::worker

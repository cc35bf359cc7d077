#include "worker/link_meter.h"

#include <doctest/doctest.h>

namespace headrace::worker {
namespace {

constexpr uint64_t kMB = 1'000'000;
const Incarnation kP{1, 1}, kQ{2, 2};

// A link on a clock of its own.
struct Links {
  LinkMeter meter;
  Instant now{};
  // One chunk by tcp, `mb` a piece.
  void chunk(int pieces, uint64_t mb, Duration each, Incarnation peer = kP) {
    meter.begin(peer, now);
    for (int i = 0; i < pieces; ++i) {
      now += each;
      meter.came(peer, mb * kMB, now);
    }
    meter.end(peer, now);
  }
  LinkUse seen(LaneKind way = LaneKind::kTcp) {
    meter.sweep(now);
    return meter.use(way);
  }
};

TEST_CASE("the limit is the highest rate over a sample, and the share what is reached of it") {
  Links links;
  CHECK(links.seen() == LinkUse{});
  links.chunk(3, 1, 125ms);
  CHECK(links.seen() == LinkUse{});  // too little to tell a rate
  links.chunk(1, 1, 125ms);          // 4 MB in 0.5 s
  CHECK(links.seen().limit == doctest::Approx(8e6));
  CHECK(links.seen().share == doctest::Approx(1));
  links.chunk(4, 1, 250ms);  // 4 MB a second
  CHECK(links.seen().limit == doctest::Approx(8e6));
  CHECK(links.seen().share == doctest::Approx(8e6 / 1.5 / 8e6));
  links.chunk(1, 20, 50ms);  // enough bytes for a sample, though it was short
  CHECK(links.seen().limit == doctest::Approx(400e6));
  CHECK(links.seen().share == doctest::Approx(28e6 / 1.55 / 400e6));
}

TEST_CASE("bytes that lay ready tell no rate by themselves") {
  Links links;
  links.chunk(3, 5, 0ms);
  CHECK(links.seen() == LinkUse{});
  links.chunk(1, 5, 100ms);
  CHECK(links.seen().limit == doctest::Approx(200e6));
}

TEST_CASE("hand-offs that share a link count its time once, and pauses between chunks not at all") {
  Links links;
  for (int i = 0; i < 3; ++i) links.meter.begin(kP, links.now);
  for (int i = 0; i < 6; ++i) {
    links.now += 100ms;
    links.meter.came(kP, kMB, links.now);
  }
  for (int i = 0; i < 3; ++i) links.meter.end(kP, links.now);
  CHECK(links.seen().limit == doctest::Approx(10e6));
  links.now += 4s;
  CHECK(links.seen().share == doctest::Approx(1));
  links.chunk(6, 1, 100ms);
  CHECK(links.seen().share == doctest::Approx(1));
}

TEST_CASE("a chunk that does not go on costs share before it has ended, and then the limit stays") {
  Links links;
  links.chunk(10, 1, 100ms);
  links.meter.begin(kP, links.now);
  links.now += 1s;
  CHECK(links.seen().share == doctest::Approx(0.5));
  links.meter.came(kP, 10 * kMB, links.now);  // and came as fast as before
  links.meter.end(kP, links.now);
  CHECK(links.seen().limit == doctest::Approx(10e6));
  CHECK(links.seen().share == doctest::Approx(1));
}

TEST_CASE("three seconds are remembered, and five without KV forget them, but not the limit") {
  Links links;
  links.chunk(10, 2, 100ms);
  links.chunk(60, 1, 100ms);
  CHECK(links.seen().share == doctest::Approx(0.5));
  links.now += 5s;
  CHECK(links.seen().share == doctest::Approx(0.5));
  links.now += 1ms;
  CHECK(links.seen().share == 0);
  CHECK(links.seen().limit == doctest::Approx(20e6));
}

TEST_CASE("each peer and each way has its own limit") {
  Links links;
  links.chunk(10, 1, 100ms, kP);
  links.chunk(10, 4, 100ms, kQ);
  CHECK(links.seen().share == doctest::Approx(1));
  CHECK(links.seen().limit == doctest::Approx(25e6));  // both had a second
  links.chunk(10, 2, 100ms, kQ);
  CHECK(links.seen().share == doctest::Approx((1 + 1 + 0.5) / 3));
  CHECK(links.seen(LaneKind::kNccl) == LinkUse{});
  for (int i = 0; i < 10; ++i) links.meter.slot(kQ, 8 * kMB, 2ms, links.now);
  CHECK(links.seen(LaneKind::kNccl).limit == doctest::Approx(4e9));
  CHECK(links.seen(LaneKind::kNccl).share == doctest::Approx(1));
  CHECK(links.seen().limit == doctest::Approx(links.meter.use(LaneKind::kTcp).limit));
  CHECK(links.meter.size() == 3);
}

TEST_CASE("peers beyond the limit push out the one unused for longest, never one under way") {
  Links links;
  links.meter.begin(kP, links.now);
  for (uint64_t i = 0; i < LinkMeter::kPeersMax; ++i) {
    links.now += 1ms;
    links.chunk(1, 1, 1ms, Incarnation{9, i});
  }
  CHECK(links.meter.size() == LinkMeter::kPeersMax);
  links.meter.end(kP, links.now);
  CHECK(links.meter.size() == LinkMeter::kPeersMax);
}

}  // namespace
}  // namespace headrace::worker

#include "worker/prefix_log.h"

#include <doctest/doctest.h>

#include <set>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

using Kind = PrefixEvent::Kind;

PrefixEvent added(uint64_t hash) { return {Kind::kAdded, hash}; }
PrefixEvent evicted(uint64_t hash) { return {Kind::kEvicted, hash}; }

// What a coordinator does with the events of a beat.
struct Reader {
  uint64_t seen = 0;
  std::set<uint64_t> known;
  void take(const PrefixLog::Part& part) {
    uint64_t number = part.from;
    for (const PrefixEvent& e : part.events) {
      const bool gap = number > seen;
      if (number++ < seen || (gap && e.kind != Kind::kReset)) continue;
      seen = number;
      if (e.kind == Kind::kReset) known.clear();
      if (e.kind == Kind::kAdded) known.insert(e.hash);
      if (e.kind == Kind::kEvicted) known.erase(e.hash);
    }
  }
};

TEST_CASE("events are numbered from 0 and sent until they were seen") {
  PrefixLog log(10);
  log.restart({added(1)});
  log.add(added(2));
  log.add(evicted(1));
  CHECK(log.unseen(9).from == 0);
  CHECK(log.unseen(9).events == std::vector{added(1), added(2), evicted(1)});
  CHECK(log.unseen(2).events.size() == 2);
  log.seen(2);
  CHECK(log.unseen(9).from == 2);
  CHECK(log.unseen(9).events == std::vector{evicted(1)});
  log.seen(1);  // late
  CHECK(log.unseen(9).from == 2);
  log.seen(77);  // never given out
  CHECK(log.unseen(9).from == 2);
  log.seen(3);
  CHECK(log.unseen(9).events.empty());
  log.restart({});
  CHECK(log.unseen(9).from == 0);
}

TEST_CASE("who missed what was forgotten gets a reset and everything, under new numbers") {
  PrefixLog log(3);
  for (uint64_t i = 0; i < 5; ++i) log.add(added(i));
  REQUIRE(log.lost());
  log.reset({added(3), added(4)});
  CHECK(!log.lost());
  const auto part = log.unseen(9);
  CHECK(part.from == 5);
  CHECK(part.events == std::vector{PrefixEvent{Kind::kReset, 0}, added(3), added(4)});
  log.seen(0);  // the coordinator has not had that beat yet
  CHECK(log.unseen(9).from == 5);
  log.seen(8);
  CHECK(log.unseen(9).events.empty());
}

TEST_CASE("whatever beats and pings are lost, late or repeated, the reader ends with the truth") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    PrefixLog log(20);
    std::set<uint64_t> truth;
    const auto everything = [&] {
      std::vector<PrefixEvent> all;
      for (const uint64_t h : truth) all.push_back(added(h));
      return all;
    };
    Reader reader;
    std::vector<PrefixLog::Part> late;
    std::vector<uint64_t> pings = {0};
    for (int i = 0; i < 3000; ++i) {
      const uint64_t hash = random.next() % 15;
      if (truth.insert(hash).second) {
        log.add(added(hash));
      } else {
        truth.erase(hash);
        log.add(evicted(hash));
      }
      if (random.next() % 3 == 0) {
        if (log.lost()) log.reset(everything());
        late.push_back(log.unseen(7));
        if (random.next() % 3 != 0) reader.take(late[random.next() % late.size()]);
        pings.push_back(reader.seen);
      }
      if (random.next() % 8 == 0) log.seen(pings[random.next() % pings.size()]);
    }
    for (int i = 0; i < 10; ++i) {
      if (log.lost()) log.reset(everything());
      reader.take(log.unseen(7));
      log.seen(reader.seen);
    }
    CHECK(reader.known == truth);
  }
}

}  // namespace
}  // namespace headrace::worker

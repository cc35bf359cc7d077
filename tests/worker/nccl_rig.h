#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/nccl_fabric.h"
#include "tests/sim/sim_world.h"
#include "worker/nccl_pairs.h"

namespace headrace::worker {

// One device's end of everything.
struct NcclSide {
  NcclSide(sim::SimWorld& world, sim::NcclFabric& fabric, const std::string& name, uint64_t device,
           NcclOptions options, uint32_t version = 22809)
      : process(world.spawn(name)),
        strand(process.make_strand()),
        driver(fabric, strand, version, [](const std::byte*) { return true; }),
        pairs(strand, driver, (options.device = device, options)),
        incarnation{device, 1} {}
  sim::SimProcess& process;
  std::shared_ptr<Strand> strand;
  sim::FakeNccl driver;
  NcclPairs pairs;
  Incarnation incarnation;
};

// What an owner of a lane hears.
struct NcclHeard {
  std::vector<std::pair<uint32_t, size_t>> moved;
  Status failed;
  bool quiet = false;
  bool lost = false;
  std::deque<Bytes> on_way;  // notes told
};

// A lane from one side to another, whose notes take a millisecond.
struct NcclWay {
  NcclWay(sim::SimWorld& the_world, NcclSide& from, NcclSide& to, size_t slots = 4)
      : world(the_world), memory(slots, std::vector<std::byte>(64)), room(memory) {
    const LaneTerms offered = from.pairs.offer(to.incarnation);
    const LaneTerms answered = to.pairs.answer(from.incarnation, offered);
    if (answered.kind != LaneKind::kNccl) return;
    d = to.pairs.lane(LaneEnd::kDecode, from.incarnation, offered, host(at_d, p));
    p = from.pairs.lane(LaneEnd::kPrefill, to.incarnation, answered, host(at_p, d));
    for (size_t i = 0; i < slots; ++i) {
      for (size_t k = 0; k < 64; ++k) memory[i][k] = std::byte(i * 64 + k);
    }
  }
  void post_all() {
    for (uint32_t i = 0; i < memory.size(); ++i) {
      d->post({i, room[i]});
      p->post({i, memory[i]});
    }
  }
  bool over() const { return at_d.moved.size() == memory.size() && room == memory; }
  // Until `done`, sweeping both sides; false: not within the time.
  template <class Done>
  static bool run(sim::SimWorld& world, const std::vector<NcclSide*>& sides, const Done& done,
                  Duration most = 30s) {
    int turns = 0;
    for (const Instant end = world.now() + most; !done() && world.now() < end;) {
      world.run_for(1ms);
      if (++turns % 50 != 0) continue;
      for (NcclSide* side : sides) side->pairs.sweep();
    }
    return done();
  }

  PayloadLane::Host host(NcclHeard& heard, std::unique_ptr<PayloadLane>& other) {
    PayloadLane::Host h;
    h.tell = [this, &heard, &other](const Bytes& note) {
      if (deaf) return;
      heard.on_way.push_back(note);
      world.at(1ms, [&heard, &other] {
        const Bytes next = std::move(heard.on_way.front());
        heard.on_way.pop_front();
        if (other) CHECK(other->heard(next).ok());
      });
    };
    h.moved = [&heard](uint32_t i, size_t n) { heard.moved.push_back({i, n}); };
    h.failed = [&heard](const Status& why) { heard.failed = why; };
    h.quiet = [&heard] { heard.quiet = true; };
    h.lost = [&heard](const Status&) { heard.lost = true; };
    return h;
  }

  sim::SimWorld& world;
  std::vector<std::vector<std::byte>> memory, room;
  NcclHeard at_p, at_d;
  std::unique_ptr<PayloadLane> p, d;
  bool deaf = false;  // notes are lost
};

}  // namespace headrace::worker

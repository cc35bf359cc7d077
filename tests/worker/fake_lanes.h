#pragma once

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "worker/payload_lane.h"

namespace headrace::worker {

// A lane that does what the test says, and remembers what was asked of it.
struct FakeLane {
  PayloadLane::Host host;
  std::deque<LaneSlot> posted;
  std::vector<Bytes> notes;
  std::vector<LaneEnding> endings;
  LaneState state_at_end = LaneState::kQuiet;
  std::function<void()> on_close{};
  LaneCounters counters{};
};

class FakeLanes final : public LaneSource {
 public:
  LaneTerms offer(Incarnation, std::string*) override { return terms; }
  LaneTerms answer(Incarnation, const LaneTerms& offered, std::string*) override {
    return offered.kind == LaneKind::kNccl ? terms : LaneTerms{};
  }
  Status agree(const LaneTerms&, const LaneTerms&) override { return {}; }
  std::unique_ptr<PayloadLane> lane(LaneEnd, Incarnation, const LaneTerms&,
                                    PayloadLane::Host host) override {
    lanes.push_back(std::make_shared<FakeLane>());
    lanes.back()->host = std::move(host);
    return std::make_unique<End>(lanes.back());
  }
  void sweep() override {}
  Status health() const override { return {}; }

  LaneTerms terms{LaneKind::kNccl, 22809, 3000, 1, 1};
  std::vector<std::shared_ptr<FakeLane>> lanes;  // all that were made

 private:
  // What the hand-off holds.
  struct End final : PayloadLane {
    explicit End(std::shared_ptr<FakeLane> l) : lane(std::move(l)) {}
    Status heard(std::span<const std::byte> note) override {
      lane->notes.emplace_back(note.begin(), note.end());
      return note.empty() ? error(Errc::kInvalid, "an empty note") : Status{};
    }
    void post(LaneSlot slot) override { lane->posted.push_back(slot); }
    LaneState close(LaneEnding why) override {
      lane->endings.push_back(why);
      if (lane->on_close) lane->on_close();
      return lane->state_at_end;
    }
    LaneState state() const override { return lane->state_at_end; }
    LaneCounters counters() const override { return lane->counters; }
    const std::shared_ptr<FakeLane> lane;
  };
};

// The oldest slot that P has posted goes to the oldest of D's, changed on its way. False: one end
// has none.
inline bool shift(FakeLane& p, FakeLane& d, const std::function<void(LaneSlot&)>& change = {}) {
  if (p.posted.empty() || d.posted.empty()) return false;
  const LaneSlot from = p.posted.front();
  const LaneSlot to = d.posted.front();
  p.posted.pop_front();
  d.posted.pop_front();
  if (from.memory.size() > to.memory.size()) std::abort();
  std::ranges::copy(from.memory, to.memory.begin());
  LaneSlot arrived{to.index, to.memory.first(from.memory.size())};
  if (change) change(arrived);
  p.host.moved(from.index, from.memory.size());
  d.host.moved(to.index, arrived.memory.size());
  return true;
}

}  // namespace headrace::worker

#include "worker/handoff_lane.h"

#include <utility>

#include "protocol/check.h"

namespace headrace::worker {

HandoffLane::HandoffLane(std::shared_ptr<LaneSource> source, LaneEnd end, Incarnation peer,
                         const LaneTerms& theirs, Host host)
    : source_(std::move(source)), host_(std::move(host)) {
  PayloadLane::Host lane;
  lane.tell = [this](Bytes note) { host_.tell(std::move(note)); };
  lane.moved = [this](uint32_t index, size_t bytes) { moved(index, bytes); };
  lane.failed = [this](Status why) { host_.failed(std::move(why)); };
  lane.quiet = [this] {
    settle(LaneState::kQuiet);
    host_.quiet();
  };
  lane.lost = [this](const Status&) {
    settle(LaneState::kQuarantine);
    host_.quiet();
  };
  lane_ = source_->lane(end, peer, theirs, std::move(lane));
}

void HandoffLane::post(const BlockStage::SlotPtr& slot, size_t bytes) {
  CHECK(bytes > 0 && bytes <= slot->device().size());
  CHECK(slots_.emplace(slot->index(), slot).second);
  lane_->post({slot->index(), slot->device().first(bytes)});
}

bool HandoffLane::end(LaneEnding why) { return settle(lane_->close(why)); }

void HandoffLane::moved(uint32_t index, size_t bytes) {
  auto slot = slots_.extract(index);
  CHECK(!slot.empty());
  host_.moved(std::move(slot.mapped()), bytes);
}

// Whether nothing moves any more. Slots that something may still read or write are kept from all.
bool HandoffLane::settle(LaneState state) {
  if (state == LaneState::kBusy) return false;
  if (state == LaneState::kQuarantine)
    for (auto& [index, slot] : slots_) slot->abandon();
  slots_.clear();
  return true;
}

}  // namespace headrace::worker

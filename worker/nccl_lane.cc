#include "worker/nccl_lane.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "worker/nccl_pairs.h"

namespace headrace::worker {

NcclLane::NcclLane(NcclPairs& owner, LaneEnd which, Incarnation incarnation, const LaneTerms& terms,
                   Host callbacks)
    : pairs(owner),
      end(which),
      peer(incarnation),
      device(terms.device),
      slot_bytes(std::min(terms.slot_bytes, owner.options().slot_bytes)),
      made(owner.strand().now()),
      host_(std::move(callbacks)),
      self_(std::make_shared<NcclLane*>(this)),
      marked_(made) {}

NcclLane::~NcclLane() { pairs.forget(*this); }

Status NcclLane::heard(std::span<const std::byte> note) {
  auto decoded = decode_nccl(note);
  if (!decoded) return std::move(decoded).error();
  return pairs.heard(*this, *decoded);
}

void NcclLane::post(LaneSlot slot) {
  CHECK(!slot.memory.empty() && slot.memory.size() <= kLaneSlotMax);
  CHECK(posted.size() < kLaneSlotsMax);
  if (over()) return;
  mark();
  posted.push_back(slot);
  ++posted_ever;
  pairs.posted(*this);
}

LaneState NcclLane::close(LaneEnding why) {
  mark();
  awaited = false;
  pairs.close(*this, why);
  awaited = state() == LaneState::kBusy;
  return state();
}

LaneState NcclLane::state() const {
  if (lost) return LaneState::kQuarantine;
  if (closed && planted(Mistake::kNcclFreedEarly)) return LaneState::kQuiet;
  return busy ? LaneState::kBusy : LaneState::kQuiet;
}

LaneCounters NcclLane::counters() const { return counters_; }

void NcclLane::tell(const NcclNote& note) {
  if (!cut) host_.tell(encode_nccl(note));
}

void NcclLane::moved(const LaneSlot& slot, size_t bytes) {
  mark();
  counters_.bytes += bytes;
  ++counters_.slots;
  report([this, index = slot.index, bytes] { host_.moved(index, bytes); }, false);
}

void NcclLane::fail(Status why) {
  if (failed) return;
  mark();
  failed = true;
  posted.clear();
  offer.reset();
  report([this, why = std::move(why)] { host_.failed(why); }, false);
}

void NcclLane::let_go() {
  mark();
  busy = running = false;
  if (!std::exchange(awaited, false)) return;
  report(
      [this] {
        if (host_.quiet) host_.quiet();
      },
      true);
}

void NcclLane::lose(Status why) {
  lost = true;
  if (!std::exchange(awaited, false)) return;
  report(
      [this, why = std::move(why)] {
        if (host_.lost) host_.lost(why);
      },
      true);
}

void NcclLane::mark() {
  const Instant now = pairs.strand().now();
  if (running) {
    counters_.on_wire += now - marked_;
  } else if (busy || !posted.empty()) {
    counters_.waited += now - marked_;
  }
  marked_ = now;
}

void NcclLane::report(std::function<void()> what, bool after_close) {
  pairs.strand().post([weak = std::weak_ptr(self_), what = std::move(what), after_close] {
    const auto self = weak.lock();
    if (self && (after_close || !(*self)->closed)) what();
  });
}

}  // namespace headrace::worker

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "worker/block_stage.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

// One hand-off's end of a lane, with the staging slots that it holds: what sender and receiver have
// in common. A slot posted here stays lent until its bytes have moved or nothing can move them any
// more; one that could not be stopped is never lent again.
//
// Lives on the strand of its owner. Callbacks are as those of PayloadLane, of which it must not be
// destroyed inside, nor before end() or `quiet` have said that nothing moves.
class HandoffLane {
 public:
  struct Host {
    std::function<void(Bytes)> tell;                               // a note, over the channel
    std::function<void(BlockStage::SlotPtr, size_t bytes)> moved;  // in order of posting
    std::function<void(Status)> failed;                            // it has to be ended
    std::function<void()> quiet;                                   // after end() was false
  };
  // `peer` and `theirs`: of the other end, as its frame said.
  HandoffLane(std::shared_ptr<LaneSource> source, LaneEnd end, Incarnation peer,
              const LaneTerms& theirs, Host host);
  HandoffLane(const HandoffLane&) = delete;

  // The first `bytes` of the slot's half on the device.
  void post(const BlockStage::SlotPtr& slot, size_t bytes);
  // A note of the peer's lane. Not ok: the hand-off has failed.
  Status heard(std::span<const std::byte> note) { return lane_->heard(note); }
  // Slots that have not moved.
  size_t posted() const { return slots_.size(); }
  // Nothing new. True: nothing moves. False: something may, and the channel carries notes until
  // `quiet`. Again with kCut: the channel broke meanwhile.
  bool end(LaneEnding why);
  LaneCounters counters() const { return lane_->counters(); }

 private:
  void moved(uint32_t index, size_t bytes);
  bool settle(LaneState state);

  std::shared_ptr<LaneSource> source_;
  Host host_;
  std::map<uint32_t, BlockStage::SlotPtr> slots_;  // posted
  std::unique_ptr<PayloadLane> lane_;              // last: it refers to all
};

}  // namespace headrace::worker

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "worker/nccl_notes.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

class NcclPairs;
struct NcclPair;

// One hand-off's end of a pair: its queue, its credit, its times. What it may begin is decided by
// NcclPairs (which communicator) and NcclTurn (when); these two use what is inside.
class NcclLane final : public PayloadLane {
 public:
  NcclLane(NcclPairs& owner, LaneEnd which, Incarnation incarnation, const LaneTerms& terms,
           Host callbacks);
  ~NcclLane() override;
  Status heard(std::span<const std::byte> note) override;
  void post(LaneSlot slot) override;
  LaneState close(LaneEnding why) override;
  LaneState state() const override;
  LaneCounters counters() const override;

  // --- for NcclPairs and NcclTurn ---
  bool over() const { return closed || failed; }
  // P: a batch could be offered.
  bool can_offer() const { return !over() && !posted.empty() && offered != peer_posted; }
  void tell(const NcclNote& note);
  void moved(const LaneSlot& slot, size_t bytes);
  // Nothing new; the owner hears of it.
  void fail(Status why);
  // The batch under way is over: the owner may be waiting for that.
  void let_go();
  void lose(Status why);  // the batch under way cannot be stopped
  void mark();            // before anything changes that the times depend on

  NcclPairs& pairs;
  const LaneEnd end;
  const Incarnation peer;
  const uint64_t device;  // the peer's
  const uint32_t slot_bytes;
  const Instant made;
  NcclPair* pair = nullptr;
  std::deque<LaneSlot> posted;  // not under way
  bool joined_open = false;     // P: the communicator was open when this lane said Join
  uint32_t posted_ever = 0;
  uint32_t peer_posted = 0;               // P: what D has said
  uint32_t offered = 0;                   // P: slots
  uint32_t batch = 0;                     // P: newest offered; D: newest heard of
  std::optional<nccl_note::Offer> offer;  // D: waits for its turn
  bool busy = false;                      // a batch is with NcclTurn
  bool running = false;                   // and launched
  bool closed = false, cut = false, failed = false, lost = false;
  bool awaited = false;  // the owner was told kBusy

 private:
  void report(std::function<void()> what, bool after_close);

  Host host_;
  std::shared_ptr<NcclLane*> self_;  // what was posted holds it weakly
  LaneCounters counters_;
  Instant marked_{};
};

}  // namespace headrace::worker

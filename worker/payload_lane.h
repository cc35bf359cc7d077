#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "protocol/ids.h"
#include "protocol/link.h"
#include "protocol/result.h"
#include "protocol/strand.h"

namespace headrace::worker {

// The seam between a hand-off and what moves its KV bytes beside the KV channel: from a staging
// slot of the prefill worker (P) into one of the decode worker (D). Everything else stays on the
// channel: hello, chunk ends, commit, verdict, signs of life, and the lane's own notes. Without a
// lane (LaneKind::kTcp) the bytes are slices of the channel, too.
//
//   P: Hello carries offer(). D: HelloAck carries answer(). Both nccl: each makes its lane().
//   P: post() of a full slot ... moved(): the slot may be filled again.
//   D: post() of an empty slot ... moved(): its bytes are there: verify, scatter, post() again.
//   Either: failed(), or the hand-off is over: close(), wait until it is quiet, then close the
//   channel and free the slots.
//
// Slots arrive in the order in which P posted them, which is the order of the bytes of the
// hand-off. A chunk's end may overtake its last slots; D keeps it until they are there.

enum class LaneKind : uint8_t { kTcp, kNccl };

// What an end says of itself, in Hello and HelloAck, under their MACs. Anything may arrive here.
struct LaneTerms {
  LaneKind kind = LaneKind::kTcp;
  uint32_t version = 0;     // of the library; both must be equal
  uint32_t slot_bytes = 0;  // the most that one slot carries; the smaller of both is used
  uint64_t host = 0;        // equal on one machine; another: only over links declared trusted
  uint64_t device = 0;      // random, of this source; outlives the worker's incarnations
  bool operator==(const LaneTerms&) const = default;
};

constexpr size_t kLaneNoteMax = 256;   // bytes of one note
constexpr uint32_t kLaneSlotMin = 16;  // bytes; a smaller announcement is refused
constexpr uint32_t kLaneSlotMax = 64u << 20;
constexpr uint32_t kLaneSlotsMax = 16;  // posted at a time, each end

enum class LaneEnd : uint8_t { kPrefill, kDecode };

struct LaneSlot {
  uint32_t index = 0;  // the owner's name for it, handed back by moved()
  // Memory of the device, untouched by anybody else until moved() or until the lane is quiet. P:
  // what to send, complete (no work of the device that fills it is under way). D: room of
  // slot_bytes.
  std::span<std::byte> memory;
};

struct LaneCounters {
  uint64_t bytes = 0;  // moved
  uint64_t slots = 0;  // moved
  Duration waited{};   // with a slot posted and nothing under way: for the pair, the peer, a turn
  Duration on_wire{};  // with a slot under way
};

// Why a lane is closed.
enum class LaneEnding : uint8_t {
  kOver,     // all went well, or the hand-off was given up: the channel carries notes until quiet
  kCut,      // the channel is gone: no note goes or comes
  kStalled,  // as kOver, and slots that the peer announced did not come: no lane for it for a while
  kCorrupt,  // the same, since what came was wrong
};

enum class LaneState : uint8_t {
  kQuiet,       // nothing reads or writes the slots, nor ever will
  kBusy,        // something may; `quiet` is called when it has stopped
  kQuarantine,  // it could not be stopped in time: the slots are lost until the process ends
};

// One hand-off's way for payload. Lives on the strand of its owner: all calls and callbacks happen
// there, callbacks never from inside a call. After close() only notes, `quiet` and `lost` may come;
// after destruction nothing does.
class PayloadLane {
 public:
  struct Host {
    // A note for the peer's lane: over the channel, in order, at most kLaneNoteMax bytes. The one
    // callback that may come from inside a call.
    std::function<void(Bytes)> tell;
    // By order of posting. `bytes`: P: all of the slot; D: what arrived, at most its room.
    std::function<void(uint32_t index, size_t bytes)> moved;
    // Once: no slot moves any more; the hand-off has failed and may be tried again over tcp. The
    // owner closes the lane. kDeadline: a wait of the lane's is over, kDisconnected: anything else.
    std::function<void(Status)> failed;
    std::function<void()> quiet{};       // kBusy has become kQuiet
    std::function<void(Status)> lost{};  // kBusy has become kQuarantine
  };
  // Only when kQuiet or kQuarantine, or at the end of the process; never inside one of its
  // callbacks.
  virtual ~PayloadLane() = default;

  // A note from the peer's lane. Any bytes; not ok: they do not belong here, the hand-off has
  // failed.
  virtual Status heard(std::span<const std::byte> note) = 0;
  // At most kLaneSlotsMax that have not moved. May be called before the lane is ready.
  virtual void post(LaneSlot slot) = 0;
  // Nothing new begins; posted slots that did not begin are let go. kBusy lasts for as long as one
  // wait of the lane's (a second), or until it cannot be stopped (seconds). Again, with kCut: the
  // channel broke meanwhile.
  virtual LaneState close(LaneEnding why) = 0;
  virtual LaneState state() const = 0;
  virtual LaneCounters counters() const = 0;
};

// What makes lanes: one a device, on the same strand.
class LaneSource {
 public:
  virtual ~LaneSource() = default;
  // For Hello to this peer. kTcp where nothing better is there, allowed and well; `why`, if asked,
  // says so in words (for logs and metrics).
  virtual LaneTerms offer(Incarnation peer, std::string* why = nullptr) = 0;
  // For HelloAck: kNccl only if both ends can and may.
  virtual LaneTerms answer(Incarnation peer, const LaneTerms& offered,
                           std::string* why = nullptr) = 0;
  // P: whether an answer is one to the offer; else the hand-off has failed.
  virtual Status agree(const LaneTerms& offered, const LaneTerms& answered) = 0;
  // One end of a lane, after both have said kNccl; `terms` are the peer's. Notes may be heard at
  // once. It must not outlive the source.
  virtual std::unique_ptr<PayloadLane> lane(LaneEnd end, Incarnation peer, const LaneTerms& terms,
                                            PayloadLane::Host host) = 0;
  // Deadlines; the owner calls it each 100 ms.
  virtual void sweep() = 0;
  // Not ok: something could not be stopped, or is used up; the process has to be started again.
  // Lanes are not offered any more.
  virtual Status health() const = 0;
};

}  // namespace headrace::worker

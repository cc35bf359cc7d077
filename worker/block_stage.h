#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/block_copies.h"
#include "protocol/ids.h"
#include "protocol/result.h"
#include "protocol/strand.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

class BlockStage;

// How a hand-off reaches the blocks of its worker.
struct BlockMemory {
  // Where a block lies, if the host uses it as its own memory.
  std::function<std::byte*(BlockId)> host;
  BlockStage* stage = nullptr;                  // else: by way of its slots
  std::shared_ptr<LaneSource> lanes = nullptr;  // with slots: may move them beside the channel
};

// Moves whole KV blocks between a device whose memory the host does not see and its staging slots
// (kernels/block_copies.h), for all hand-offs of a worker. Lives on the worker's strand and never
// waits there: what is under way is looked at by a timer. Callbacks come on the strand, never from
// inside a call.
//
// Blocks and slot of a copy are in use until its callback has come, whoever has lost interest
// meanwhile: the device cannot be told to stop. A device that fails, or does not end a copy in
// time, is reported to `lost`, once; if that returns, copies under way and all later ones end with
// kInternal.
class BlockStage {
 public:
  static constexpr Duration kPollEvery = 100us;

  // A slot lent. It is free again when the last holder has let go, which happens on the strand.
  class Slot {
   public:
    uint32_t index() const { return index_; }
    std::span<std::byte> host() const;
    std::span<std::byte> device() const;
    // Something may read or write it for ever: it is not lent again.
    void abandon() { abandoned_ = true; }

   private:
    friend class BlockStage;
    Slot(std::weak_ptr<BlockStage*> stage, uint32_t index)
        : stage_(std::move(stage)), index_(index) {}
    std::weak_ptr<BlockStage*> stage_;
    uint32_t index_;
    bool abandoned_ = false;
  };
  using SlotPtr = std::shared_ptr<Slot>;

  struct Copied {
    Status status;                   // of the device
    std::span<const uint32_t> crcs;  // CRC-32C of each block; valid inside the callback
  };

  BlockStage(std::shared_ptr<Strand> strand, kernels::BlockCopies& copies,
             std::function<void(const std::string&)> lost);
  // Slots may outlive it; they are then of no use.
  ~BlockStage();
  BlockStage(const BlockStage&) = delete;

  uint32_t slot_blocks() const { return copies_.slot_blocks(); }
  // Lends a slot for this way when there is one: first come, first served.
  void lend(kernels::CopyWay way, std::function<void(SlotPtr)> got);
  // Copies blocks out to the slot or in from it; `host`: as BlockCopies::begin has it. One copy of
  // a slot at a time.
  void copy(const SlotPtr& slot, std::span<const BlockId> blocks, bool host,
            std::function<void(const Copied&)> done);
  size_t under_way() const { return running_.size(); }

 private:
  struct Running {
    SlotPtr slot;
    std::function<void(const Copied&)> done;
  };
  struct Side {
    std::vector<uint32_t> free;  // slots
    std::deque<std::function<void(SlotPtr)>> waiting;
    bool serving = false;  // a task is posted
  };

  Side& side(uint32_t slot) { return sides_[slot >= kernels::kCopySlots ? 1 : 0]; }
  void serve(Side& side);
  void hand_out(Side& side);
  void give_back(uint32_t slot);
  void watch();
  void poll();
  bool over(const Running& running);
  void fail(const std::string& why);

  std::shared_ptr<Strand> strand_;
  kernels::BlockCopies& copies_;
  std::function<void(const std::string&)> lost_;
  std::shared_ptr<BlockStage*> self_;  // slots and tasks hold it weakly
  Side sides_[2];                      // by CopyWay
  std::deque<Running> running_;
  std::optional<Status> failed_;
  Timer timer_;
  bool watching_ = false;
};

}  // namespace headrace::worker

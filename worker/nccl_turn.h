#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/strand.h"
#include "worker/nccl_driver.h"
#include "worker/nccl_lane.h"
#include "worker/nccl_notes.h"

namespace headrace::worker {

// In which order one device's lanes launch. A device may run what is launched one by one, so two
// devices that launch the same pairs in opposite orders would wait for each other for ever. Hence
// at most one batch goes out and one comes in:
//
//  - A batch is offered only while nothing comes in, and launched when the peer says Go.
//  - Go is said when the receives are launched: while nothing comes in, and, if a batch of ours is
//    offered and not launched, only to a device of a lower number.
//
// So a send never waits behind a receive but of a lower device's, and a receive never behind a send
// but one whose receive was launched before: no cycle of waits. Lanes take turns, batch by batch.
class NcclTurn {
 public:
  struct Waits {
    Duration progress;  // of a batch under way, from one slot to the next
    Duration go;        // of an offer
  };
  // `broken`: the communicator failed, or a wait of it is over.
  NcclTurn(std::shared_ptr<Strand> strand, NcclDriver& driver, uint64_t device, const Waits& waits,
           std::function<void(CommNo, Status)> broken);

  void ready(NcclLane& lane);  // P: something may be offered
  Status offered(NcclLane& lane, nccl_note::Offer offer);
  Status go(NcclLane& lane, const nccl_note::Go& go);
  void bye(NcclLane& lane);  // P: what was offered and not launched never will be
  // Nothing new of this lane. True: a batch of it is offered (P) or was offered to us (D), and not
  // launched: how the peer takes that, nobody knows.
  bool withdraw(NcclLane& lane);

  void forget(NcclLane& lane);    // it is being destroyed
  void wake() { pump(); }         // a communicator is open
  void begin_abort(CommNo comm);  // what is not launched is dropped; nothing is launched until
  void end_abort(CommNo comm);    // it is over, with what it was doing
  bool moves(CommNo comm) const;  // a batch of it was launched and has not ended
  void lose(CommNo comm, const Status& why);  // it never is: the turn stands still
  void sweep();

 private:
  struct Batch {
    NcclLane* lane = nullptr;
    CommNo comm{};
    uint32_t number = 0;
    std::vector<LaneSlot> slots;
    std::vector<uint32_t> sizes;
    size_t moved = 0;
    bool running = false;
    Instant since{};
  };
  using Current = std::optional<Batch>;

  void pump();
  void offer_next();
  void receive_next();
  void launch(Current& batch);
  void on_moved(bool out, CommNo comm, uint32_t number, size_t slot, Status status);
  void drop(Current& batch);
  void watch(const Current& batch);

  std::shared_ptr<Strand> strand_;
  NcclDriver& driver_;
  const uint64_t device_;
  const Waits waits_;
  std::function<void(CommNo, Status)> broken_;
  std::shared_ptr<NcclTurn*> self_;
  Current out_, in_;
  std::deque<NcclLane*> senders_;  // wait to offer
  std::deque<NcclLane*> offers_;   // wait for Go
  uint32_t aborting_ = 0;
  bool lost_ = false;
};

}  // namespace headrace::worker

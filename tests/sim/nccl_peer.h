#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/nccl_fabric.h"
#include "worker/nccl_pairs.h"

namespace headrace::sim {

// What is asked of a hand-off in these runs.
struct NcclTask {
  uint32_t number = 0;
  uint32_t slots = 1;
  Duration cancel_after{};  // zero: never
  bool cancel_at_decode = false;
};

// How one end saw it go.
struct NcclEnd {
  bool nccl = false;  // else tcp
  bool ok = false;
  bool cancelled = false;
  std::string why;
};
using NcclEnded = std::function<void(const NcclTask&, worker::LaneEnd, const NcclEnd&)>;

// A process with one device, and hand-offs to and from others: hello, notes and sums over a
// channel, payload over the lane, or over the channel where there is none. Slots are verified
// against what the task says they hold, and against the sums that the sender told.
class NcclPeer {
 public:
  struct Setup {
    std::string name;
    uint32_t version = 22809;
    worker::NcclOptions options;
    NcclEnded ended;
  };
  NcclPeer(SimWorld& world, NcclFabric& fabric, const Setup& setup);
  ~NcclPeer();

  void hand_off(const NcclTask& task, NcclPeer& to);
  // Ends the process; this stays, as nothing more than what others may still point to.
  void die(bool silently);
  Instant last_sweep() const { return last_sweep_; }
  SimProcess& process() { return process_; }
  const std::string& name() const { return name_; }
  FakeNccl& driver() { return *driver_; }
  worker::NcclPairs& pairs() { return *pairs_; }
  Incarnation incarnation() const { return incarnation_; }
  size_t slots_held() const { return held_.size(); }
  size_t open() const { return transfers_.size(); }
  uint32_t readies() const { return readies_; }
  // The longest that a hand-off of this end has lasted; one that only waits to be quiet included.
  Duration oldest() const;
  bool well() const { return pairs_->health().ok(); }

 private:
  struct Slot {
    std::vector<std::byte> bytes;
  };
  struct Transfer {
    NcclTask task;
    worker::LaneEnd end{};
    Incarnation peer;
    std::unique_ptr<Link> link;
    std::unique_ptr<worker::PayloadLane> lane;
    worker::LaneTerms terms;  // ours
    std::vector<std::shared_ptr<Slot>> ring;
    uint32_t next = 0;                               // slot to be posted
    uint32_t done = 0;                               // moved
    std::vector<std::pair<bool, uint64_t>> sums;     // D: as told
    std::vector<std::pair<bool, uint64_t>> arrived;  // D: as found
    bool greeted = false, ended = false, cut = false;
    Instant made{}, heard{}, spoke{};
    Timer cancel;
  };
  using Ptr = std::shared_ptr<Transfer>;

  void on_link(const Ptr& t, std::unique_ptr<Link> link);
  void on_frame(const Ptr& t, const Bytes& frame);
  void on_hello(const Ptr& t, const Bytes& frame);
  void on_ack(const Ptr& t, const Bytes& frame);
  void on_sum(const Ptr& t, const Bytes& frame);
  void on_moved(const Ptr& t, uint32_t index, size_t bytes);
  void make_lane(const Ptr& t, const worker::LaneTerms& theirs);
  void fill(const Ptr& t);
  void check(const Ptr& t, uint32_t slot);
  void say(const Ptr& t, char kind, const Bytes& body = {});
  void end(const Ptr& t, bool ok, const std::string& why,
           worker::LaneEnding how = worker::LaneEnding::kOver, bool cancelled = false);
  void quiet(const Ptr& t);
  void sweep();
  std::shared_ptr<Slot> take(size_t bytes);
  void give_back(Transfer& t);

  SimWorld& world_;
  NcclFabric& fabric_;
  const std::string name_;
  NcclEnded ended_;
  SimProcess& process_;
  std::shared_ptr<Strand> strand_;
  Incarnation incarnation_;
  std::map<const std::byte*, std::shared_ptr<Slot>> held_;
  std::vector<std::shared_ptr<Slot>> freed_;  // kept: a lie may still write there
  std::unique_ptr<FakeNccl> driver_;
  std::unique_ptr<worker::NcclPairs> pairs_;
  std::unique_ptr<Listener> listener_;
  std::vector<Ptr> transfers_;
  std::vector<Ptr> over_;  // quiet; destroyed by the next sweep
  uint32_t readies_ = 0;
  Instant last_sweep_{};
  Timer timer_;
};

}  // namespace headrace::sim

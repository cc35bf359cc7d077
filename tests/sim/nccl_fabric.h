#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/sim_world.h"
#include "worker/nccl_driver.h"

namespace headrace::sim {

class FakeNccl;

// What a driver does wrong while it lasts. Hangs are of this end alone; the other cannot tell.
struct NcclFaults {
  bool hang_mint = false;   // goes on afterwards
  bool hang_init = false;   // begun meanwhile: never connects
  bool hang_moves = false;  // of this device; they go on afterwards
  bool hang_abort = false;  // begun meanwhile: never ends
  bool fail_abort = false;  // says so, and what is under way goes on
  bool lose_posts = false;  // P's slots; only where SimLanes makes the lanes
  bool fail_mint = false;
  bool fail_init = false;
  bool fail_moves = false;
  uint32_t lie_one_in = 0;  // receives that are done before their bytes are there
};

// What all fake libraries share: who has called which id, and what was seen to be wrong.
class NcclFabric {
 public:
  explicit NcclFabric(SimWorld& the_world) : world(the_world) {}
  void violation(std::string what);
  // Fails a run; the first is kept.
  std::string wrong;

  struct End {
    FakeNccl* driver = nullptr;
    worker::CommNo comm{};
    worker::CommName name;
  };
  struct Meeting {
    FakeNccl* minter = nullptr;
    std::map<worker::LaneEnd, End> ends;
    bool connected = false;
  };
  std::map<worker::NcclId, Meeting> meetings;
  uint64_t minted = 0;
  uint64_t moved = 0;
  uint64_t connected = 0;
  uint64_t lies = 0;
  SimWorld& world;
};

// One process's library and its device, which runs what is launched one by one. `memory` is asked
// before each byte that is read or written: false: it has been freed.
class FakeNccl final : public worker::NcclDriver {
 public:
  using Memory = std::function<bool(const std::byte*)>;
  FakeNccl(NcclFabric& fabric, std::shared_ptr<Strand> strand, uint32_t version, Memory memory);
  ~FakeNccl() override;  // as the process ends: peers hang

  uint32_t version() const override { return version_; }
  void mint(std::function<void(Result<worker::NcclId>)> done) override;
  void open(worker::CommNo comm, const worker::CommName& name, const worker::NcclId& id,
            worker::LaneEnd end, Done done) override;
  void send(worker::CommNo comm, std::span<const std::byte> from, Done done) override;
  void receive(worker::CommNo comm, std::span<std::byte> to, Done done) override;
  void abort(worker::CommNo comm, Done done) override;

  NcclFaults faults;
  // Now, of this process.
  size_t communicators() const { return comms_.size(); }
  size_t unused_ids() const;
  uint64_t minted() const { return minted_; }
  // The process has died: nothing of this device moves any more, and nobody is told.
  void die() { dead_ = true; }
  size_t launched() const { return queue_.size(); }
  // The longest that an abort has been under way.
  Duration aborting() const;
  // Faults of this end have changed: what hung may go on.
  void nudge();

 private:
  struct Comm {
    worker::NcclId id{};
    worker::LaneEnd end{};
    Done opened;
    bool hung = false;
    bool connected = false;
    Instant aborting{};  // since then; or never
  };
  struct Op {
    worker::CommNo comm{};
    bool out = false;
    std::byte* memory = nullptr;
    size_t bytes = 0;
    Done done;
    bool moving = false;
  };

  void launch(Op op);
  void connect(NcclFabric::Meeting& meeting);
  FakeNccl* peer_of(worker::CommNo comm, worker::CommNo* theirs) const;
  static void start(FakeNccl& sender, FakeNccl& receiver);
  static void finish(FakeNccl& sender, FakeNccl& receiver, uint64_t move);
  void post(Done done, Status status);
  void tell_moved(const Done& done);
  void touch(const Op& op);
  void later(Duration least, Duration most, std::function<void()> what);

  NcclFabric& fabric_;
  std::shared_ptr<Strand> strand_;
  const uint32_t version_;
  Memory memory_;
  std::shared_ptr<FakeNccl*> self_;
  std::map<worker::CommNo, Comm> comms_;
  std::deque<std::function<void(Result<worker::NcclId>)>> mints_;  // that hang
  std::set<worker::NcclId> unused_;
  std::deque<Op> queue_;
  uint64_t moves_ = 0;  // names the one under way
  uint64_t minted_ = 0;
  Instant told_{};  // of the newest move that was over
  bool dead_ = false;
};

}  // namespace headrace::sim

#pragma once

#include <map>
#include <memory>

#include "coordinator/limits.h"
#include "coordinator/mesh_port.h"
#include "protocol/actor.h"
#include "protocol/link.h"

namespace headrace::coordinator {

// What became of the links so far.
struct DoorCounters {
  uint64_t accepted = 0;
  uint64_t turned_away = 0;  // over the limit of links
  uint64_t silent = 0;       // no Register in time
  uint64_t malformed = 0;    // a frame that does not decode, or not the one that is due
  uint64_t closed = 0;       // by the worker, or broken
};

// Where workers knock. Owns their links, turns frames into messages for the Dispatcher and back.
// The first frame of a link is a Register and is due within kRegisterWithin; no later one is. A
// frame that breaks the rules closes its link and no other. An actor on one strand.
class MeshDoor final : public MeshPort, public std::enable_shared_from_this<MeshDoor> {
 public:
  static constexpr size_t kLinksMax = kWorkersMax + 64;

  explicit MeshDoor(std::shared_ptr<Strand> strand) : strand_(std::move(strand)) {}

  // Opens the door, once, before anything is told. The real endpoint, or kUnavailable with one line
  // that names the address.
  Result<Endpoint> listen(Network& network, const Endpoint& at, Ref<WorkerEvents> events);

  void on(SendToWorker message) override;
  void on(DropWorker message) override;

  const DoorCounters& counters() const { return counters_; }  // on the strand
  size_t links() const { return peers_.size(); }              // on the strand

 private:
  struct Peer {
    std::unique_ptr<Link> link;
    bool registered = false;
    bool broken = false;  // a rule was broken: it goes at the next turn, nothing more is read
    Timer register_by;
  };

  void accept(std::unique_ptr<Link> link);
  void take_frame(WorkerId id, const Bytes& frame);
  // Says it was lost if it had registered. Not from inside a callback of its link.
  void lose(WorkerId id, Status why);
  void break_off(WorkerId id, Status why);

  std::shared_ptr<Strand> strand_;
  Ref<WorkerEvents> events_;
  uint64_t next_ = 1;
  std::map<WorkerId, Peer> peers_;  // at most kLinksMax
  DoorCounters counters_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace headrace::coordinator

#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/sim/cast.h"

namespace headrace::sim {

// What goes wrong in one run: by the clock, by ambush, by the weather. All drawn from the seed.
class Misfortune {
 public:
  explicit Misfortune(Cast& cast) : cast_(cast) {}

  void script();  // draws everything that comes by the clock; sets the weather
  void calm();    // no more of it; who is down comes back
  void start_worker(size_t slot);
  // After each task of a worker or of the coordinator.
  void look(const std::string& process);
  // A process of a slot ends, well or badly; another one starts a little later.
  void end_life(size_t slot, Death death);

 private:
  struct Armed {
    Ambush ambush;
    uint32_t seen = 0;
    bool done = false;
  };
  void strike(Fault fault, size_t slot);
  void crash(size_t slot);
  void cut(size_t slot);
  void delay(size_t slot);
  void freeze_coordinator();
  void drain(size_t slot);
  void mark(const std::string& process, Fault fault);
  void entered(State state, size_t slot, TransferId transfer);
  size_t peer_of(size_t slot, TransferId transfer) const;
  size_t any_slot() { return cast_.draw(cast_.slots.size()); }
  std::string other_than(size_t slot);
  decltype(worker::WorkerOptions::lanes) lanes_of(Slot& slot);
  void spoil_lanes(size_t slot);
  void several(uint32_t most, const std::function<void()>& one);

  Cast& cast_;
  bool over_ = false;
  size_t armed_left_ = 0;
  std::vector<Armed> armed_;
  std::map<const SimProcess*, Instant> graces_;              // of those that drain: when it is over
  std::map<std::string, std::map<TransferId, State>> seen_;  // by process
  std::map<RequestId, State> records_;
};

}  // namespace headrace::sim

#pragma once

#include <deque>
#include <map>
#include <memory>

#include "protocol/strand.h"
#include "tests/sim/sim_world.h"

namespace headrace::sim {

// A strand of one process: its tasks run in the order of their posting, each a little later than it
// was posted. Once the process is dead nothing runs, and what is posted is dropped.
class SimStrand final : public Strand, public std::enable_shared_from_this<SimStrand> {
 public:
  explicit SimStrand(std::shared_ptr<SimLife> life) : life_(std::move(life)) {}
  Instant now() const override;
  void post(Task task) override;
  Timer after(Duration delay, Task task) override;
  void clear();  // drops all that waits

 private:
  class Pending;
  void schedule_next(Instant when);
  void run_next();
  void run(Task task);
  void schedule_timer(Instant when, uint64_t timer);
  void fire(uint64_t timer);
  bool alive() const { return life_->alive && life_->world != nullptr; }

  std::shared_ptr<SimLife> life_;
  std::deque<Task> ready_;
  std::map<uint64_t, Task> timers_;
  uint64_t timer_next_ = 0;
};

}  // namespace headrace::sim

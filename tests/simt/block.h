#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/simt/bulk.h"
#include "tests/simt/lane.h"
#include "tests/simt/warp.h"

namespace headrace::simt {

// Runs the threads of one block on fibers, in the current order. Reused for block after block; for
// ThreadSanitizer all blocks of one object are one after another, so races between two blocks are
// seen if these run in two objects.
class Block {
 public:
  enum class Stop : uint8_t {
    kEnded,
    kParked,     // all that can run waits for the launch in front
    kTriggered,  // a thread let the launch behind begin
  };

  Block();
  ~Block();

  void begin(Grid& grid, uint64_t index);
  // Goes on until one of these; kTriggered only if asked for. Throws FaultError.
  Stop run(bool stop_at_trigger);
  bool triggered() const { return triggered_; }
  unsigned size() const { return size_; }

  // The rest is for what threads ask.
  Lane& lane(unsigned index) { return *lanes_[index]; }
  const Grid& grid() const { return *grid_; }
  std::mt19937& random() { return random_; }
  Bulk& bulk() { return bulk_; }
  // For ThreadSanitizer: what copies in the background. It knows what a thread had done when it
  // issued the copy, and no more; a thread knows of a copy from the wait on.
  void become_engine(const Lane& issuer);
  void end_engine(void* word);  // back to whoever called become_engine; the copy releases `word`
  Warp& warp(const Lane& lane) { return warps_[lane.index / kWarpLanes]; }
  // Lets waiting lanes run, in the current order; they come in ascending order.
  void wake(std::vector<Lane*>& lanes);
  // Does what the lane has asked for, on its own fiber; false: it was a fault.
  bool serve(Lane& lane);
  Lane* next_ready();
  void enter(Lane& lane);
  void wait_at_barrier(Lane& lane);
  void wait_for_front(Lane& lane);
  void trigger(Lane& lane);
  void end(Lane& lane);

 private:
  std::vector<Lane*>& all_lanes();
  void place_lane(unsigned index, uint64_t block);
  void place_shared(size_t bytes);
  void step(Lane& lane);
  void unpark();
  void finish();
  FaultError deadlock() const;

  Grid* grid_ = nullptr;
  uint3 index_{};
  unsigned size_ = 0;
  unsigned live_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Lane*> all_;
  std::deque<Lane*> ready_;
  std::optional<FaultError> fault_;  // of a lane, for the scheduler to throw
  std::array<Warp, kBlockThreadsMax / kWarpLanes> warps_;
  Bulk bulk_;
  std::mt19937 random_;

  unsigned at_barrier_ = 0;  // lanes that wait in syncthreads
  unsigned parked_ = 0;
  const Lane* barrier_first_ = nullptr;
  const Lane* first_ended_ = nullptr;
  bool triggered_ = false;
  bool waited_for_front_ = false;

  char* shared_memory_ = nullptr;  // with guards on both sides where no sanitizer keeps them
  char* shared_ = nullptr;
  size_t shared_bytes_ = 0;
  char barrier_word_ = 0;
  char end_word_ = 0;
  void* engine_fiber_ = nullptr;
  void* engine_caller_ = nullptr;
};

// For ThreadSanitizer: all these lanes have done what they did before any goes on.
void join(const std::vector<Lane*>& lanes, void* word);
void acquire_as(const Lane& lane, void* word);
void release_as(const Lane& lane, void* word);

}  // namespace headrace::simt

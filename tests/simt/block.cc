#include "tests/simt/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/simt/order.h"
#include "tests/simt/sanitizers.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace headrace::simt {

Here* here = nullptr;
Lane* running = nullptr;

namespace {

constexpr size_t kSharedAlignment = 128;
constexpr size_t kGuardBytes = 128;
constexpr char kGuardByte = 0x5a;
constexpr char kUnwrittenByte = -1;  // a NaN in every float format, -1 in integers

size_t guard_bytes() { return sanitizers::address() ? 0 : kGuardBytes; }

void run_lane(void* argument) {
  Lane& lane = *static_cast<Lane*>(argument);
  lane.block->grid().launch.thread();
  lane.ask("its end", {}, [&] { lane.block->end(lane); });
}

bool intact(const char* guard) {
  return std::all_of(guard, guard + kGuardBytes, [](char byte) { return byte == kGuardByte; });
}

void act_as(const Lane& lane, void (*act)(void*), void* word) {
  if (!sanitizers::thread()) return;
  void* self = sanitizers::current_fiber();
  sanitizers::become(lane.fiber.sanitizer_fiber());
  act(word);
  sanitizers::become(self);
}

}  // namespace

void release_as(const Lane& lane, void* word) { act_as(lane, &sanitizers::release, word); }
void acquire_as(const Lane& lane, void* word) { act_as(lane, &sanitizers::acquire, word); }

void join(const std::vector<Lane*>& lanes, void* word) {
  for (const Lane* lane : lanes) release_as(*lane, word);
  for (const Lane* lane : lanes) acquire_as(*lane, word);
}

// Made here: a fiber is ordered behind what its maker has done.
Block::Block() : engine_fiber_(sanitizers::new_fiber()) {}

// Ends only after a fault: what paused threads did so far is before whatever the caller does.
Block::~Block() {
  for (const auto& lane : lanes_) release_as(*lane, &end_word_);
  if (engine_fiber_) {
    engine_caller_ = sanitizers::current_fiber();
    sanitizers::become(engine_fiber_);
    end_engine(&end_word_);
  }
  sanitizers::acquire(&end_word_);
  sanitizers::delete_fiber(engine_fiber_);
  std::free(shared_memory_);
}

void Block::begin(Grid& grid, uint64_t index) {
  const dim3 blocks = grid.launch.grid;
  const dim3 threads = grid.launch.block;
  grid_ = &grid;
  index_ = {static_cast<unsigned>(index % blocks.x),
            static_cast<unsigned>(index / blocks.x % blocks.y),
            static_cast<unsigned>(index / blocks.x / blocks.y)};
  size_ = live_ = threads.x * threads.y * threads.z;
  at_barrier_ = parked_ = 0;
  barrier_first_ = first_ended_ = nullptr;
  triggered_ = waited_for_front_ = false;
  random_.seed(current_order().seed + static_cast<uint32_t>(index));
  place_shared(grid.launch.shared_bytes);
  bulk_.begin();
  while (lanes_.size() < size_) lanes_.push_back(std::make_unique<Lane>());
  ready_.clear();
  for (unsigned i = 0; i < size_; ++i) place_lane(i, index);
  for (unsigned first = 0; first < size_; first += kWarpLanes) {
    const unsigned count = std::min(kWarpLanes, size_ - first);
    warps_[first / kWarpLanes].begin(count == kWarpLanes ? ~0u : (1u << count) - 1);
  }
  wake(all_lanes());
}

std::vector<Lane*>& Block::all_lanes() {
  all_.clear();
  for (unsigned i = 0; i < size_; ++i) all_.push_back(lanes_[i].get());
  return all_;
}

void Block::place_lane(unsigned index, uint64_t block) {
  const dim3 threads = grid_->launch.block;
  Lane& lane = *lanes_[index];
  lane.block = this;
  lane.index = index;
  lane.thread = {index % threads.x, index / threads.x % threads.y, index / threads.x / threads.y};
  lane.here = {
      grid_->launch.kernel, static_cast<unsigned>(block), index, shared_, shared_bytes_, false};
  lane.where = "its first line";
  lane.at = {};
  lane.copies.clear();
  lane.groups.clear();
  lane.copies_taken = 0;
  lane.copying = false;
  lane.bar = nullptr;
  lane.fiber.start(&run_lane, &lane, index);
  acquire_as(lane, &grid_->begin_word);
  acquire_as(lane, &end_word_);
  for (const Grid* front = grid_->front; front; front = front->front) {
    if (front->complete) acquire_as(lane, const_cast<char*>(&front->end_word));
  }
}

// Exact bounds: AddressSanitizer's own, or guards that finish() looks at.
void Block::place_shared(size_t bytes) {
  const size_t guard = guard_bytes();
  if (bytes != shared_bytes_ || !shared_memory_) {
    std::free(shared_memory_);
    void* memory = nullptr;
    if (posix_memalign(&memory, kSharedAlignment, bytes + 2 * guard) != 0) std::abort();
    shared_memory_ = static_cast<char*>(memory);
    shared_ = shared_memory_ + guard;
    shared_bytes_ = bytes;
  }
  std::memset(shared_memory_, kGuardByte, guard);
  std::memset(shared_, kUnwrittenByte, bytes);
  std::memset(shared_ + bytes, kGuardByte, guard);
}

void Block::become_engine(const Lane& issuer) {
  if (!sanitizers::thread()) return;
  engine_caller_ = sanitizers::current_fiber();
  sanitizers::become(engine_fiber_);
  sanitizers::acquire(const_cast<char*>(&issuer.issue_word));
}

void Block::end_engine(void* word) {
  if (!sanitizers::thread()) return;
  sanitizers::release(word);
  sanitizers::become(engine_caller_);
}

Block::Stop Block::run(bool stop_at_trigger) {
  blockIdx = index_;
  blockDim = grid_->launch.block;
  gridDim = grid_->launch.grid;
  unpark();
  for (;;) {
    if (stop_at_trigger && triggered_ && live_ > 0) return Stop::kTriggered;
    if (Lane* lane = next_ready()) {
      step(*lane);
    } else if (bulk_.run_one(*this)) {
    } else if (live_ == 0) {
      finish();
      return Stop::kEnded;
    } else if (parked_ > 0) {
      return Stop::kParked;
    } else {
      throw deadlock();
    }
  }
}

void Block::enter(Lane& lane) {
  lane.state = Lane::State::kRunning;
  threadIdx = lane.thread;
  running = &lane;
  here = &lane.here;
}

// Runs the lane, and those that go on in its place, until one pauses.
void Block::step(Lane& lane) {
  Lane* paused = &lane;
  do {
    enter(*paused);
    paused->fiber.resume();
    here = nullptr;
    paused = std::exchange(running, nullptr);
    if (fault_) throw *std::exchange(fault_, std::nullopt);
    if (sanitizers::thread()) paused->request(paused->argument);
  } while (paused->state == Lane::State::kRunning);
}

// ThreadSanitizer takes what one fiber allocates and another frees for a race: there the scheduler
// does all of it, where accesses are ignored.
void Lane::serve() {
  if (sanitizers::thread()) return fiber.pause();
  if (!block->serve(*this)) return fiber.pause();
  if (state == State::kRunning) return;
  const bool others = state == State::kWaiting || state == State::kEnded;
  Lane* next = others ? block->next_ready() : nullptr;
  if (!next) return fiber.pause();
  block->enter(*next);
  if (next != this) fiber.pause_for(next->fiber);
}

bool Block::serve(Lane& lane) {
  try {
    lane.request(lane.argument);
  } catch (FaultError& error) {
    fault_ = std::move(error);  // this stack is not the caller's
    return false;
  }
  return true;
}

Lane* Block::next_ready() {
  if (ready_.empty()) return nullptr;
  const Order& order = current_order();
  if (order.threads == Order::Threads::kRandom && !order.run_ahead) {
    std::swap(ready_.front(), ready_[random_() % ready_.size()]);
  }
  Lane* lane = ready_.front();
  ready_.pop_front();
  return lane;
}

void Block::wake(std::vector<Lane*>& lanes) {
  const Order& order = current_order();
  if (order.threads == Order::Threads::kDescending) std::reverse(lanes.begin(), lanes.end());
  if (order.threads == Order::Threads::kRandom) std::shuffle(lanes.begin(), lanes.end(), random_);
  for (Lane* lane : lanes) lane->state = Lane::State::kReady;
  ready_.insert(order.run_ahead ? ready_.begin() : ready_.end(), lanes.begin(), lanes.end());
}

void Block::wait_at_barrier(Lane& lane) {
  if (first_ended_) {
    throw fault(
        lane, lane.at,
        "syncthreads after thread " + std::to_string(first_ended_->index) + " has returned");
  }
  if (at_barrier_ == 0) barrier_first_ = &lane;
  if (!same_line(barrier_first_->at, lane.at)) {
    throw fault(lane, lane.at,
                "divergent syncthreads: thread " + std::to_string(barrier_first_->index) +
                    " waits in that of " + to_string(barrier_first_->at));
  }
  lane.state = Lane::State::kWaiting;
  if (++at_barrier_ < size_) return;
  at_barrier_ = 0;
  join(all_lanes(), &barrier_word_);
  wake(all_);
}

void Block::wait_for_front(Lane& lane) {
  waited_for_front_ = true;
  if (!grid_->front) return;
  if (!grid_->front->complete) {
    lane.state = Lane::State::kParked;
    ++parked_;
    return;
  }
  acquire_as(lane, &grid_->front->end_word);
}

void Block::unpark() {
  if (parked_ == 0 || !grid_->front->complete) return;
  std::vector<Lane*> lanes;
  for (unsigned i = 0; i < size_; ++i) {
    if (lanes_[i]->state == Lane::State::kParked) lanes.push_back(lanes_[i].get());
  }
  for (const Lane* lane : lanes) acquire_as(*lane, &grid_->front->end_word);
  parked_ = 0;
  wake(lanes);
}

void Block::trigger(Lane& lane) {
  if (triggered_) return;
  triggered_ = true;
  lane.state = Lane::State::kReady;
  ready_.push_front(&lane);
}

void Block::end(Lane& lane) {
  if (lane.copies_taken < lane.copies.size()) {
    throw fault(lane, lane.copies[lane.copies_taken].at, "returns with this copy not waited for");
  }
  if (at_barrier_ > 0) {
    throw fault(lane, barrier_first_->at,
                "returns while thread " + std::to_string(barrier_first_->index) +
                    " waits in this syncthreads");
  }
  warp(lane).end(lane);
  lane.state = Lane::State::kEnded;
  if (!first_ended_) first_ended_ = &lane;
  --live_;
  release_as(lane, &end_word_);
  release_as(lane, &grid_->end_word);
}

void Block::finish() {
  const Lane& lane = *lanes_[0];
  bulk_.check_end(lane);
  if (grid_->front && !waited_for_front_) {
    throw fault(lane, {}, "no thread of a dependent launch called grid_dependency_wait");
  }
  if (guard_bytes() && !(intact(shared_memory_) && intact(shared_ + shared_bytes_))) {
    throw fault(
        lane, {},
        "wrote outside of its " + std::to_string(shared_bytes_) + " bytes of shared memory");
  }
}

FaultError Block::deadlock() const {
  struct Group {
    const Lane* first;
    unsigned count;
  };
  std::vector<Group> groups;
  for (unsigned i = 0; i < size_; ++i) {
    const Lane& lane = *lanes_[i];
    const auto same = [&](const Group& group) {
      return !std::strcmp(group.first->where, lane.where) && same_line(group.first->at, lane.at);
    };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found != groups.end()) {
      ++found->count;
    } else {
      groups.push_back({&lane, 1});
    }
  }
  std::string text = "deadlock, no thread can run:";
  const Lane* first = nullptr;
  for (const Group& group : groups) {
    const bool ended = group.first->state == Lane::State::kEnded;
    text += " " + std::to_string(group.count) +
            (ended ? std::string(" have returned")
                   : std::string(" in ") + group.first->where + " " + to_string(group.first->at)) +
            " (thread " + std::to_string(group.first->index) + ");";
    if (!first && !ended) first = group.first;
  }
  text.pop_back();
  return fault(*first, first->at, text);
}

}  // namespace headrace::simt

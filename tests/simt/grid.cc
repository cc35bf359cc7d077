#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "tests/simt/block.h"
#include "tests/simt/launch.h"
#include "tests/simt/order.h"
#include "tests/simt/sanitizers.h"

namespace headrace::simt {
namespace {

// What a GPU takes (CUDA C++ Programming Guide, compute capabilities).
constexpr unsigned kGridYzMax = 65535;
constexpr unsigned kGridXMax = 2147483647;
constexpr unsigned kBlockZMax = 64;
constexpr size_t kSharedBytesMax = size_t{227} << 10;

// Threads of all blocks begun and not ended, where launches overlap; half for the one in front.
constexpr unsigned kResidentThreads = 2048;
// ThreadSanitizer: threads of the blocks taken in turn.
constexpr unsigned kTurnThreads = 1024;
constexpr unsigned kTurnBlocksMin = 3;
constexpr unsigned kTurnBlocksMax = 8;

// Blocks between uses, by size, since each keeps as many stacks as it ever had threads; the one
// used longest ago first. Two blocks in the same one are ordered for ThreadSanitizer: in
// orders with eager copies one stays aside, so that other blocks meet in one there.
class BlockPool {
 public:
  std::unique_ptr<Block> take(unsigned threads) {
    const size_t turns = sanitizers::thread()
                             ? std::clamp(kTurnThreads / threads, kTurnBlocksMin, kTurnBlocksMax)
                             : 1;
    Shelf& shelf = shelves_[std::bit_width(threads)];
    if (shelf.made < turns || shelf.free.empty()) {
      ++shelf.made;
      return std::make_unique<Block>();
    }
    const bool aside = !current_order().late_copies && turns > 1 && shelf.free.size() >= turns;
    const auto at = shelf.free.begin() + aside;
    std::unique_ptr<Block> block = std::move(*at);
    shelf.free.erase(at);
    return block;
  }
  void give(std::unique_ptr<Block> block) {
    shelves_[std::bit_width(block->size())].free.push_back(std::move(block));
  }
  // Blocks that a fault stopped are gone with their paused fibers.
  void forget() { shelves_.clear(); }

 private:
  struct Shelf {
    std::deque<std::unique_ptr<Block>> free;
    size_t made = 0;
  };
  std::map<int, Shelf> shelves_;  // by the bits of the number of threads
};

BlockPool& pool() {
  static auto* blocks = new BlockPool;  // outlives whatever runs kernels at exit
  return *blocks;
}

unsigned threads_of(const Launch& launch) {
  return launch.block.x * launch.block.y * launch.block.z;
}

struct Running {
  Grid grid;
  std::vector<uint32_t> blocks;  // in the order in which they begin
  size_t begun = 0;
  std::vector<std::unique_ptr<Block>> live;

  bool all_triggered() const {
    return begun == blocks.size() &&
           std::all_of(live.begin(), live.end(), [](auto& block) { return block->triggered(); });
  }
};

class Chain {
 public:
  explicit Chain(std::span<const Launch> launches) {
    runs_.reserve(launches.size());
    for (const Launch& launch : launches) {
      Running& run = runs_.emplace_back(Running{{launch}, {}, 0, {}});
      if (runs_.size() > 1) run.grid.front = &runs_[runs_.size() - 2].grid;
      run.blocks = block_order(launch);
      sanitizers::release(&run.grid.begin_word);
    }
  }

  void run() {
    for (size_t first = 0; first < runs_.size(); ++first) {
      first_ = first;
      // Those behind go as far as they can before the first of them goes on.
      size_t last = first;
      while (current_order().early_dependents && last + 1 < runs_.size()) {
        go_on(last, true);
        if (!runs_[last].all_triggered()) break;
        ++last;
      }
      for (; last > first; --last) go_on(last, false);
      go_on(first, false);
      runs_[first].grid.complete = true;
    }
    for (Running& run : runs_) sanitizers::acquire(&run.grid.end_word);
  }

 private:
  static std::vector<uint32_t> block_order(const Launch& launch) {
    const Order& order = current_order();
    std::vector<uint32_t> blocks(size_t{launch.grid.x} * launch.grid.y * launch.grid.z);
    std::iota(blocks.begin(), blocks.end(), 0);
    if (order.threads == Order::Threads::kDescending) std::reverse(blocks.begin(), blocks.end());
    if (order.threads == Order::Threads::kRandom) {
      std::shuffle(blocks.begin(), blocks.end(), std::mt19937(order.seed));
    }
    return blocks;
  }

  // Runs the blocks of one launch as far as they go.
  void go_on(size_t i, bool stop_at_trigger) {
    Running& run = runs_[i];
    const unsigned threads = threads_of(run.grid.launch);
    std::vector<std::unique_ptr<Block>> paused;
    paused.swap(run.live);
    for (auto& block : paused) go_on(run, std::move(block), stop_at_trigger);
    while (run.begun < run.blocks.size()) {
      if (i > first_ && resident_ + threads > kResidentThreads) return;
      // All blocks of a launch must trigger: only the last of them can be held there together.
      const size_t left = run.blocks.size() - run.begun;
      const bool may_stop = stop_at_trigger && left * threads <= kResidentThreads / 2;
      std::unique_ptr<Block> block = pool().take(threads);
      block->begin(run.grid, run.blocks[run.begun++]);
      resident_ += threads;
      go_on(run, std::move(block), may_stop);
    }
  }

  void go_on(Running& run, std::unique_ptr<Block> block, bool stop_at_trigger) {
    if (block->run(stop_at_trigger) != Block::Stop::kEnded) {
      run.live.push_back(std::move(block));
      return;
    }
    resident_ -= block->size();
    pool().give(std::move(block));
  }

  std::vector<Running> runs_;
  size_t first_ = 0;  // not complete; those before it are
  unsigned resident_ = 0;
};

}  // namespace

const char* refusal(const Launch& launch) {
  const dim3 grid = launch.grid;
  const dim3 block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > kGridXMax || grid.y > kGridYzMax ||
      grid.z > kGridYzMax) {
    return "grid out of range";
  }
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kBlockThreadsMax || block.z > kBlockZMax) {
    return "block out of range";
  }
  return launch.shared_bytes > kSharedBytesMax ? "more shared memory than a block can have"
                                               : nullptr;
}

std::optional<Fault> run_grids(std::span<const Launch> launches) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  for (const Launch& launch : launches) {
    if (const char* what = refusal(launch)) return Fault{std::string(launch.kernel) + ": " + what};
  }
  std::optional<Fault> result;
  sanitizers::ignore_accesses(true);
  try {
    Chain(launches).run();
  } catch (const FaultError& error) {
    result = Fault{error.what};
    pool().forget();
  }
  sanitizers::ignore_accesses(false);
  return result;
}

std::optional<Fault> run_grid(const Launch& launch) { return run_grids({&launch, 1}); }

}  // namespace headrace::simt

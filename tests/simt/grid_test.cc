#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/every_order.h"

// The emulator's grids: every thread once, in the order asked for; launches that overlap.
namespace headrace::simt {
namespace {

using namespace headrace::cuda;
using Threads = Order::Threads;

__global__ void mark(unsigned* seen) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomic_add(&seen[block * blockDim.x * blockDim.y * blockDim.z + thread], 1u);
}

TEST_CASE("grid: every thread of every block runs once") {
  in_every_order([] {
    std::vector<unsigned> seen(2 * 3 * 4 * 5 * 6 * 7);
    CHECK(text(run_grid(make_launch("mark", {2, 3, 4}, {5, 6, 7}, 0, mark, seen.data()))) == "");
    CHECK(std::all_of(seen.begin(), seen.end(), [](unsigned count) { return count == 1; }));
    std::vector<unsigned> largest(1024);
    CHECK(text(run_grid(make_launch("mark", 1, 1024, 0, mark, largest.data()))) == "");
    CHECK(std::all_of(largest.begin(), largest.end(), [](unsigned count) { return count == 1; }));
  });
}

// Appends to a log, which atomics order for ThreadSanitizer.
struct Log {
  unsigned length = 0;
  unsigned entries[64] = {};
};

__global__ void steps(Log* log) {
  for (unsigned step = 0; step < 2; ++step) {
    const unsigned entry = step * 100 + blockIdx.x * 10 + threadIdx.x;
    log->entries[atomic_add(&log->length, 1u)] = entry;
    syncwarp(0xf);
  }
}

std::string trace(const Order& order) {
  set_order(order);
  Log log;
  CHECK(text(run_grid(make_launch("steps", 2, 4, 0, steps, &log))) == "");
  set_order({});
  std::string text;
  for (unsigned i = 0; i < log.length; ++i) text += std::to_string(log.entries[i]) + " ";
  return text;
}

TEST_CASE("grid: threads and blocks go in the order asked for") {
  CHECK(trace({Threads::kAscending}) == "0 1 2 3 100 101 102 103 10 11 12 13 110 111 112 113 ");
  CHECK(trace({Threads::kDescending}) == "13 12 11 10 113 112 111 110 3 2 1 0 103 102 101 100 ");
  std::set<std::string> random;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    random.insert(trace({Threads::kRandom, true, true, true, seed}));
    random.insert(trace({Threads::kRandom, false, true, true, seed}));
    CHECK(trace({Threads::kRandom, false, true, true, seed}) ==
          trace({Threads::kRandom, false, true, true, seed}));
  }
  CHECK(random.size() > 8);
}

// Two warps; each lane says when it passes a warp barrier.
__global__ void two_warps(Log* log) {
  for (unsigned step = 0; step < 2; ++step) {
    syncwarp();
    if (threadIdx.x % 32 == 0) log->entries[atomic_add(&log->length, 1u)] = threadIdx.x / 32;
  }
}

TEST_CASE("grid: those let go run ahead of all others, or behind them") {
  const auto trace_warps = [](bool run_ahead) {
    set_order({Threads::kAscending, run_ahead});
    Log log;
    CHECK(text(run_grid(make_launch("two_warps", 1, 64, 0, two_warps, &log))) == "");
    set_order({});
    return std::vector<unsigned>(log.entries, log.entries + 4);
  };
  CHECK(trace_warps(true) == std::vector<unsigned>{0, 0, 1, 1});
  CHECK(trace_warps(false) == std::vector<unsigned>{0, 1, 0, 1});
}

__global__ void unwritten(float* out, int* integer) {
  HEADRACE_SHARED(float, shared);
  out[blockIdx.x] = shared[24];
  integer[blockIdx.x] = reinterpret_cast<int*>(shared)[7];
  shared[24] = shared[7] = 1;
}

TEST_CASE("grid: shared memory that no thread of the block wrote is NaN, or -1") {
  float numbers[3] = {};
  int integers[3] = {};
  CHECK(text(run_grid(make_launch("unwritten", 3, 1, 100, unwritten, numbers, integers))) == "");
  for (const float number : numbers) CHECK(std::isnan(number));
  for (const int integer : integers) CHECK(integer == -1);
}

__global__ void keep(int value, int* out) { *out = value; }

TEST_CASE("grid: arguments are those of the launch's moment") {
  int value = 1;
  int out = 0;
  const Launch launch = make_launch("keep", 1, 1, 0, keep, value, &out);
  value = 2;
  CHECK(text(run_grid(launch)) == "");
  CHECK(out == 1);
}

TEST_CASE("grid: what no GPU takes is refused") {
  int out = 0;
  const auto refusal = [&](dim3 grid, dim3 block, size_t shared) {
    return text(run_grid(make_launch("keep", grid, block, shared, keep, 1, &out)));
  };
  CHECK(refusal(0, 1, 0) == "keep: grid out of range");
  CHECK(refusal({1, 65536, 1}, 1, 0) == "keep: grid out of range");
  CHECK(refusal(1, 0, 0) == "keep: block out of range");
  CHECK(refusal(1, 1025, 0) == "keep: block out of range");
  CHECK(refusal(1, {1, 1, 65}, 0) == "keep: block out of range");
  CHECK(refusal(1, {65536, 65536, 1}, 0) == "keep: block out of range");
  CHECK(refusal(1, 1, 227 * 1024 + 1) == "keep: more shared memory than a block can have");
  CHECK(refusal(1, 1, 227 * 1024) == "");
  CHECK(out == 1);
}

// What a launch wrote down: its number, 10 before it waits for the launch in front and 20 after.
__global__ void chained(Log* log, unsigned number, bool trigger_first) {
  if (trigger_first) grid_dependency_trigger();
  log->entries[atomic_add(&log->length, 1u)] = number + 10;
  grid_dependency_wait();
  log->entries[atomic_add(&log->length, 1u)] = number + 20;
}

std::vector<unsigned> chain(bool early, bool trigger_first, unsigned blocks) {
  set_order({.early_dependents = early});
  Log log;
  std::vector<Launch> launches;
  for (unsigned i = 0; i < 3; ++i) {
    launches.push_back(make_launch("chained", blocks, 1, 0, chained, &log, i, trigger_first));
    launches.back().dependent = i > 0;
  }
  CHECK(text(run_grids(launches)) == "");
  set_order({});
  return {log.entries, log.entries + log.length};
}

TEST_CASE("grid: a dependent launch begins when all blocks in front have triggered or ended") {
  using Entries = std::vector<unsigned>;
  CHECK(chain(false, true, 1) == Entries{10, 20, 11, 21, 12, 22});
  CHECK(chain(true, false, 1) == Entries{10, 20, 11, 21, 12, 22});
  CHECK(chain(true, true, 1) == Entries{12, 11, 10, 20, 21, 22});
  CHECK(chain(true, true, 2) == Entries{12, 12, 11, 11, 10, 20, 10, 20, 21, 21, 22, 22});
}

// More threads than fit at once: those of the first blocks end before the last ones trigger.
__global__ void wide_chained(unsigned* done, unsigned* seen, unsigned count) {
  grid_dependency_trigger();
  grid_dependency_wait();
  if (threadIdx.x > 0) return;
  thread_fence();
  if (count > 0) {
    if (atomic_add(done, 0u) == count) atomic_add(seen, 1u);
  } else {
    atomic_add(done, 1u);
  }
}

TEST_CASE("grid: launches larger than what runs at once overlap, too") {
  in_every_order([] {
    constexpr unsigned kBlocks = 20;
    unsigned done = 0;
    unsigned seen = 0;
    Launch pair[] = {make_launch("first", kBlocks, 256, 0, wide_chained, &done, &seen, 0u),
                     make_launch("second", kBlocks, 256, 0, wide_chained, &done, &seen, kBlocks)};
    pair[1].dependent = true;
    CHECK(text(run_grids(pair)) == "");
    CHECK(seen == kBlocks);
  });
}

}  // namespace
}  // namespace headrace::simt

#include "kernels/thread_pool.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

using headrace::kernels::parallel_for;
using headrace::kernels::ThreadPool;

TEST_CASE("every index is worked on exactly once, whatever the sizes") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 7, 16, 63, 1000}) {
      for (int64_t grain : {1, 3, 16, 2000}) {
        CAPTURE(threads);
        CAPTURE(n);
        CAPTURE(grain);
        std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
        std::atomic<int> chunks{0};
        std::atomic<bool> aligned{true}, known{true};
        auto f = [&](int64_t begin, int64_t end, int thread) {
          if (begin % grain || begin >= end) aligned = false;
          if (thread < 0 || thread >= threads) known = false;
          for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
          chunks++;
        };
        parallel_for(pool, n, grain, f);
        for (auto& h : hits) REQUIRE(h == 1);
        CHECK(aligned);
        CHECK(known);
        CHECK(chunks <= ThreadPool::kChunksPerThread * threads);
        if (n > 0 && threads > 1) {
          const int64_t units = (n + grain - 1) / grain;
          CHECK(chunks == std::min<int64_t>(units, ThreadPool::kChunksPerThread * threads));
        }
      }
    }
  }
}

TEST_CASE("two chunks under way at once never share a thread number") {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false};
  auto f = [&](int64_t, int64_t, int thread) {
    auto& mine = inside[static_cast<size_t>(thread)];
    if (mine.fetch_add(1) != 0) shared = true;
    for (int i = 0; i < 100; ++i) __builtin_ia32_pause();
    mine.fetch_sub(1);
  };
  for (int i = 0; i < 200; ++i) parallel_for(pool, 64, 1, f);
  CHECK_FALSE(shared);
}

TEST_CASE("what a job wrote is visible to the next, over many short jobs") {
  ThreadPool pool(3);
  std::vector<int64_t> cells(96, 0);  // plain memory: TSan watches it
  for (int64_t round = 0; round < 3000; ++round) {
    auto f = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        // Reads a cell that another thread wrote one round earlier, through its own copy.
        cells[static_cast<size_t>(i)] += round;
      }
    };
    parallel_for(pool, 96, 1, f);
  }
  for (int64_t c : cells) REQUIRE(c == 2999 * 3000 / 2);
}

TEST_CASE("threads that have gone to sleep take part again") {
  ThreadPool pool(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(20 * ThreadPool::kSpinMicroseconds));
    std::atomic<int> seen{0};
    // Two chunks that wait for each other: done only if two threads work. Hang guard: 20 s.
    auto f = [&](int64_t, int64_t, int thread) {
      seen |= 1 << thread;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (seen != 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    };
    parallel_for(pool, 2, 1, f);
    CHECK(seen == 3);
  }
}

TEST_CASE("a late thread leaves its range to the others") {
  ThreadPool pool(2);
  std::atomic<int> by[2] = {0, 0};
  std::atomic<bool> stuck{false};
  const int all = 2 * ThreadPool::kChunksPerThread;
  // Whoever comes first is held back until the other has done all the rest.
  auto f = [&](int64_t, int64_t, int thread) {
    if (!stuck.exchange(true)) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (by[0] + by[1] < all - 1 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
    }
    by[thread]++;
  };
  parallel_for(pool, all, 1, f);
  CHECK(by[0] + by[1] == all);
  CHECK((by[0] == 1 || by[1] == 1));
}

TEST_CASE("pools come and go, idle or after work, and no thread misses the end") {
  for (int i = 0; i < 2000; ++i) {
    ThreadPool pool(2 + i % 5);
    if (i % 2) {
      std::atomic<int64_t> sum{0};
      auto f = [&](int64_t begin, int64_t end, int) { sum += end - begin; };
      parallel_for(pool, 1000, 1, f);
      CHECK(sum == 1000);
    }
  }
}

namespace {

// Where the calling thread may run.
std::set<int> processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  std::set<int> all;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) all.insert(cpu);
  return all;
}

}  // namespace

TEST_CASE("pinned threads have a processor each, of those that the caller may use") {
  std::thread([] {  // what is pinned stays so
    const std::set<int> usable = processors();
    const auto count = static_cast<int>(usable.size());
    ThreadPool pool(count), more(count + 1);
    CHECK_FALSE(more.pin());
    CHECK(processors() == usable);
    REQUIRE(pool.pin());
    std::vector<std::set<int>> of(static_cast<size_t>(count));
    std::atomic<int> there{0};
    auto f = [&](int64_t, int64_t, int thread) {
      of[static_cast<size_t>(thread)] = processors();
      // Each thread gets one chunk: it waits for the others.
      for (++there; there < count;) std::this_thread::yield();
    };
    parallel_for(pool, count, 1, f);
    std::set<int> all;
    for (const auto& one : of) {
      CHECK(one.size() == 1);
      all.insert(one.begin(), one.end());
    }
    CHECK(all == usable);
  })
      .join();
}

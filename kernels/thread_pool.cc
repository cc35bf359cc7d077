#include "kernels/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/check.h"

namespace headrace::kernels {
namespace {

// A thread's own range of chunks in one word, so that a claim and the check that it belongs to the
// current job are one step: a thread that wakes late finds another job's number and leaves.
//   [63:32] job, [31:16] next chunk, [15:0] end
struct Range {
  static uint64_t pack(uint32_t job, int next, int end) {
    return uint64_t{job} << 32 | static_cast<uint64_t>(next) << 16 | static_cast<uint64_t>(end);
  }
  static uint32_t job(uint64_t v) { return static_cast<uint32_t>(v >> 32); }
  static int next(uint64_t v) { return static_cast<int>(v >> 16 & 0xffff); }
  static int end(uint64_t v) { return static_cast<int>(v & 0xffff); }
};
static_assert(ThreadPool::kThreadsMax * ThreadPool::kChunksPerThread < 0xffff);

struct alignas(64) Slot {
  std::atomic<uint64_t> range{0};
};

// True once `ready` holds; false when the time to spin is over.
template <class F>
bool spin_until(F&& ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::microseconds(ThreadPool::kSpinMicroseconds);
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : slots(static_cast<size_t>(threads)) {}

  // The job. Written by the caller while no chunk is claimed, read only under a claim.
  Body body = nullptr;
  void* context = nullptr;
  int64_t n = 0;
  int64_t grain = 1;
  int64_t units = 0;
  int chunks = 0;

  std::vector<Slot> slots;
  alignas(64) std::atomic<uint32_t> job{0};  // its number; also what idle threads wait on
  std::atomic<int> sleepers{0};
  alignas(64) std::atomic<int> done{0};  // chunks of the job that are finished
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  // One chunk of `job` or -1: from the thread's own range, then from the others.
  int claim(uint32_t number, int thread) {
    const int threads = static_cast<int>(slots.size());
    for (int k = 0; k < threads; ++k) {
      auto& range = slots[static_cast<size_t>((thread + k) % threads)].range;
      uint64_t v = range.load(std::memory_order_acquire);
      while (Range::job(v) == number && Range::next(v) < Range::end(v)) {
        if (range.compare_exchange_weak(v, v + (1 << 16), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
          return Range::next(v);
        }
      }
    }
    return -1;
  }

  void work(uint32_t number, int thread) {
    for (int c = claim(number, thread); c >= 0; c = claim(number, thread)) {
      const int all = chunks;
      const int64_t begin = units * c / all * grain;
      const int64_t end = std::min(n, units * (c + 1) / all * grain);
      body(context, begin, end, thread);
      // seq_cst: either this thread sees that the caller sleeps or the caller sees the count.
      if (done.fetch_add(1) + 1 == all && caller_sleeps.load()) done.notify_one();
    }
  }

  void serve(int thread) {
    uint32_t seen = 0;
    for (;;) {
      const auto changed = [&] { return job.load(std::memory_order_acquire) != seen; };
      if (!spin_until(changed)) {
        sleepers.fetch_add(1);
        while (job.load() == seen) job.wait(seen);
        sleepers.fetch_sub(1);
      }
      // In this order: whoever takes the last number sees the stop that came before it.
      seen = job.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work(seen, thread);
    }
  }

  void announce(uint32_t number) {
    job.store(number);
    if (sleepers.load() > 0) job.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  KERNELS_CHECK(threads >= 1 && threads <= kThreadsMax);
  state_ = new State(threads);
  for (int t = 1; t < threads; ++t) {
    state_->workers.emplace_back([state = state_, t] { state->serve(t); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->announce(state_->job.load() + 1);
  for (auto& worker : state_->workers) worker.join();
  delete state_;
}

bool ThreadPool::pin() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < threads_)
    return false;
  int cpu = -1;
  for (int t = 0; t < threads_; ++t) {
    do ++cpu;
    while (!CPU_ISSET(cpu, &usable));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    const pthread_t thread =
        t == 0 ? pthread_self() : state_->workers[static_cast<size_t>(t - 1)].native_handle();
    if (pthread_setaffinity_np(thread, sizeof one, &one) != 0) return false;
  }
  return true;
}

void ThreadPool::run(int64_t n, int64_t grain, Body body, void* context) {
  KERNELS_CHECK(grain >= 1);
  if (n <= 0) return;
  const int64_t units = (n + grain - 1) / grain;
  if (units == 1 || threads_ == 1) return body(context, 0, n, 0);

  State& s = *state_;
  s.body = body;
  s.context = context;
  s.n = n;
  s.grain = grain;
  s.units = units;
  s.chunks = static_cast<int>(std::min<int64_t>(units, int64_t{kChunksPerThread} * threads_));
  s.done.store(0, std::memory_order_relaxed);
  const uint32_t number = s.job.load(std::memory_order_relaxed) + 1;
  for (int t = 0; t < threads_; ++t) {
    s.slots[static_cast<size_t>(t)].range.store(
        Range::pack(number, s.chunks * t / threads_, s.chunks * (t + 1) / threads_),
        std::memory_order_release);
  }
  s.announce(number);
  s.work(number, 0);
  const auto finished = [&] { return s.done.load(std::memory_order_acquire) == s.chunks; };
  if (spin_until(finished)) return;
  s.caller_sleeps.store(true);
  for (int d = s.done.load(); d != s.chunks; d = s.done.load()) s.done.wait(d);
  s.caller_sleeps.store(false, std::memory_order_relaxed);
}

}  // namespace headrace::kernels

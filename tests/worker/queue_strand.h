#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "protocol/check.h"
#include "protocol/strand.h"

namespace headrace::worker {

// A strand on real time that runs when the test says so, on its thread.
class QueueStrand final : public Strand {
 public:
  Instant now() const override {
    return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  }
  void post(Task task) override {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    posted_.notify_all();
  }
  Timer after(Duration, Task) override {
    CHECK(false);
    return {};
  }
  // Runs tasks until `done`, looking at least each millisecond; false: not in that time.
  template <class Done>
  bool run_until(const Done& done, Duration most = 30s) {
    const Instant end = now() + most;
    while (!done()) {
      if (now() > end) return false;
      std::unique_lock lock(mutex_);
      posted_.wait_for(lock, 1ms, [&] { return !tasks_.empty(); });
      if (tasks_.empty()) continue;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Task> tasks_;
};

}  // namespace headrace::worker

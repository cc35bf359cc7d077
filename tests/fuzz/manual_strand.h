#pragma once

#include <deque>

#include "protocol/strand.h"

namespace headrace::fuzz {

// Runs what was posted when told to; time stands still in between. Timers never come due.
class ManualStrand final : public Strand {
 public:
  Instant now() const override { return now_; }
  void post(Task task) override { tasks_.push_back(std::move(task)); }
  Timer after(Duration, Task) override { return {}; }

  void drain() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  void pass(Duration time) { now_ += time; }

 private:
  Instant now_{1000s};
  std::deque<Task> tasks_;
};

}  // namespace headrace::fuzz

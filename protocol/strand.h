#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace headrace {

using Duration = std::chrono::nanoseconds;
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using namespace std::chrono_literals;

// Monotonic time. Real: the steady clock. Simulated: whatever the scheduler says.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
};

// A move-only callable without arguments; runs at most once.
class Task {
 public:
  template <class F>
  Task(F body) : body_(std::make_unique<Body<F>>(std::move(body))) {}
  void operator()() { std::exchange(body_, nullptr)->run(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void run() = 0;
  };
  template <class F>
  struct Body final : Base {
    explicit Body(F body) : f(std::move(body)) {}
    void run() override { f(); }
    F f;
  };
  std::unique_ptr<Base> body_;
};

// A pending call. Destroying it (on its strand) guarantees that the call does not happen.
class Timer {
 public:
  struct Pending {
    virtual ~Pending() = default;  // cancels
  };
  Timer() = default;
  explicit Timer(std::unique_ptr<Pending> pending) : pending_(std::move(pending)) {}
  void cancel() { pending_ = nullptr; }

 private:
  std::unique_ptr<Pending> pending_;
};

// Where an actor lives: tasks run one at a time, in the order of their posting from any one
// thread. `post` may be called from any thread, `after` only on the strand itself. Bodies: Asio
// (asio_runtime), KJ's loop (coordinator/kj_strand), the simulator (tests/sim).
class Strand : public Clock {
 public:
  virtual void post(Task task) = 0;
  [[nodiscard]] virtual Timer after(Duration delay, Task task) = 0;
};

}  // namespace headrace

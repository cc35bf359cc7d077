#include "tests/sim/sim_strand.h"

#include <algorithm>

namespace headrace::sim {

class SimStrand::Pending final : public Timer::Pending {
 public:
  Pending(std::weak_ptr<SimStrand> strand, uint64_t timer)
      : strand_(std::move(strand)), timer_(timer) {}
  ~Pending() override {
    const auto strand = strand_.lock();
    if (!strand) return;
    // Taken out before it is destroyed: the task may own other timers of this strand.
    const auto task = strand->timers_.extract(timer_);
  }

 private:
  std::weak_ptr<SimStrand> strand_;
  uint64_t timer_;
};

Instant SimStrand::now() const { return life_->world ? life_->world->now() : Instant{}; }

void SimStrand::post(Task task) {
  if (!alive()) return;
  ready_.push_back(std::move(task));
  SimWorld& world = *life_->world;
  schedule_next(world.now() +
                world.draw(Duration{0}, world.options().task_delay_max * life_->slow));
}

void SimStrand::schedule_next(Instant when) {
  life_->world->schedule(when, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->run_next();
  });
}

void SimStrand::run_next() {
  if (!alive() || ready_.empty()) return;
  if (life_->frozen_until > life_->world->now()) {
    life_->parked.push_back(Task([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->run_next();
    }));
    return;
  }
  Task task = std::move(ready_.front());
  ready_.pop_front();
  run(std::move(task));
}

// The task may end this strand, its process or both.
void SimStrand::run(Task task) {
  const std::shared_ptr<SimLife> life = life_;
  task();
  if (life->world && life->world->after_task) life->world->after_task(*life);
}

Timer SimStrand::after(Duration delay, Task task) {
  if (!alive()) return {};
  const uint64_t timer = timer_next_++;
  timers_.emplace(timer, std::move(task));
  SimWorld& world = *life_->world;
  Duration late = world.draw(Duration{0}, world.options().timer_late_max);
  const Instant due = world.now() + std::max(delay, Duration{0});
  if (world.hits(world.late_timer_one_in)) {
    late = world.draw(Duration{0}, world.late_timer_max);
    life_->late_timers.emplace_back(due, due + late);
  }
  schedule_timer(due + late, timer);
  return Timer(std::make_unique<Pending>(weak_from_this(), timer));
}

void SimStrand::schedule_timer(Instant when, uint64_t timer) {
  life_->world->schedule(when, [weak = weak_from_this(), timer] {
    if (const auto self = weak.lock()) self->fire(timer);
  });
}

void SimStrand::fire(uint64_t timer) {
  if (!alive()) return;
  if (life_->frozen_until > life_->world->now()) {
    life_->parked.push_back(Task([weak = weak_from_this(), timer] {
      if (const auto self = weak.lock()) self->fire(timer);
    }));
    return;
  }
  auto due = timers_.extract(timer);
  if (due) run(std::move(due.mapped()));
}

void SimStrand::clear() {
  // Swapped out first: destroying a task may come back here.
  std::deque<Task> ready;
  std::map<uint64_t, Task> timers;
  ready.swap(ready_);
  timers.swap(timers_);
}

}  // namespace headrace::sim

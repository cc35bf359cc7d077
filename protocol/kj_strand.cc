#include "protocol/kj_strand.h"

#include <kj/debug.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <utility>

#include "protocol/check.h"

namespace headrace {

// A promise must not be destroyed by its own continuation, so a timer that is due only posts.
struct KjStrand::Delayed final : Timer::Pending {
  explicit Delayed(std::shared_ptr<bool> flag) : live(std::move(flag)) {}
  ~Delayed() noexcept override { *live = false; }
  std::shared_ptr<bool> live;
  kj::Promise<void> due = nullptr;
};

KjStrand::KjStrand() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { CHECK(event_ >= 0); }

KjStrand::~KjStrand() noexcept { close(event_); }

void KjStrand::post(Task task) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() > 1) return;  // whoever came first has rung
  const uint64_t one = 1;
  const ssize_t rung = write(event_, &one, sizeof one);
  CHECK(rung == sizeof one);
}

Timer KjStrand::after(Duration delay, Task task) {
  CHECK(timer_);
  auto pending = std::make_unique<Delayed>(std::make_shared<bool>(true));
  const auto ns = std::max<Duration::rep>(delay.count(), 0);
  pending->due = timer_->afterDelay(ns * kj::NANOSECONDS)
                     .then([this, live = pending->live, t = std::move(task)]() mutable {
                       post([live, t = std::move(t)]() mutable {
                         if (*live) t();
                       });
                     })
                     .eagerlyEvaluate([](kj::Exception&& e) { KJ_LOG(ERROR, e); });
  return Timer(std::move(pending));
}

kj::Promise<void> KjStrand::run(kj::UnixEventPort& port, kj::Timer& timer) {
  timer_ = &timer;
  observer_ = kj::heap<kj::UnixEventPort::FdObserver>(port, event_,
                                                      kj::UnixEventPort::FdObserver::OBSERVE_READ);
  return turn();
}

kj::Promise<void> KjStrand::turn() {
  // The bell first, then the tasks: what is posted meanwhile rings again, and the edge is seen at
  // the loop's next poll, when the wait below is in place.
  uint64_t rung = 0;
  while (read(event_, &rung, sizeof rung) == sizeof rung) {
  }
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) {
    KJ_IF_MAYBE (e, kj::runCatchingExceptions([&]() { task(); })) KJ_LOG(ERROR, "a task threw", *e);
  }
  tasks.clear();
  if (closing_) return kj::READY_NOW;
  return observer_->whenBecomesReadable().then([this]() { return turn(); });
}

void KjStrand::end() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    tasks.swap(tasks_);
  }
  tasks.clear();
  timer_ = nullptr;
  observer_ = nullptr;
}

KjThread::KjThread() : strand_(std::make_shared<KjStrand>()) {
  std::promise<void> ready;
  thread_ = std::thread([this, &ready] { main([&ready] { ready.set_value(); }); });
  ready.get_future().wait();
}

KjThread::~KjThread() { stop(); }

void KjThread::main(std::function<void()> ready) {
  auto io = kj::setupAsyncIo();
  io_ = &io;
  auto running = strand_->run(io.unixEventPort, io.provider->getTimer());
  ready();
  running.wait(io.waitScope);
  strand_->end();
  io_ = nullptr;
}

void KjThread::run(std::function<void()> body) {
  CHECK(std::this_thread::get_id() != thread_.get_id());
  std::promise<void> done;
  strand_->post([&] {
    body();
    done.set_value();
  });
  done.get_future().wait();
}

void KjThread::stop(std::function<void()> last) {
  if (!thread_.joinable()) return;
  strand_->post([this, last = std::move(last)] {
    if (last) last();
    strand_->closing_ = true;
  });
  thread_.join();
}

}  // namespace headrace

#include "protocol/asio_runtime.h"

#include <boost/asio/impl/src.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <cctype>

#include "protocol/asio_core.h"
#include "protocol/check.h"

namespace headrace {
namespace {

class AsioPending final : public Timer::Pending {
 public:
  struct State {
    explicit State(std::shared_ptr<AsioStrand> s)
        : strand(std::move(s)), timer(strand->executor()) {}
    std::shared_ptr<AsioStrand> strand;  // first: the timer needs its loop
    AsioTimer timer;
    bool wanted = true;
  };

  explicit AsioPending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~AsioPending() override {
    state_->wanted = false;
    state_->timer.cancel();
  }

 private:
  std::shared_ptr<State> state_;
};

// Waits for the next signal again and again.
struct SignalWatch : std::enable_shared_from_this<SignalWatch> {
  SignalWatch(std::shared_ptr<AsioStrand> s, std::function<void(int)> c)
      : strand(std::move(s)), callback(std::move(c)), set(strand->core().loop) {}

  void wait() {
    set.async_wait([self = shared_from_this()](const AsioError& failed, int signal) {
      if (failed) return;
      self->strand->post([self, signal] { self->callback(signal); });
      self->wait();
    });
  }

  std::shared_ptr<AsioStrand> strand;  // first: the set needs its loop
  std::function<void(int)> callback;
  asio::signal_set set;
};

}  // namespace

AsioCore::AsioCore(unsigned threads)
    : loop(static_cast<int>(threads)), work_(asio::make_work_guard(loop)) {
  CHECK(threads > 0);
  running_ = threads;
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run_thread(); });
}

void AsioCore::run_thread() {
  loop.run();
  std::lock_guard lock(mutex_);
  --running_;
  ended_.notify_all();
}

bool AsioCore::enter() {
  entered_.fetch_add(1);
  if (!stopped_.load()) return true;
  leave();
  return false;
}

void AsioCore::stop() {
  if (stopped_.load()) return;
  for (const std::thread& thread : threads_) CHECK(thread.get_id() != std::this_thread::get_id());
  const auto flushed_by = std::chrono::steady_clock::now() + AsioRuntime::kFlushMax;
  while (flushing.load() > 0 && std::chrono::steady_clock::now() < flushed_by)
    std::this_thread::sleep_for(1ms);
  if (stopped_.exchange(true)) return;
  loop.stop();
  {
    std::unique_lock lock(mutex_);
    CHECK(ended_.wait_for(lock, AsioRuntime::kStopMax, [&] { return running_ == 0; }));
  }
  for (std::thread& thread : threads_) thread.join();
  while (entered_.load() > 0) std::this_thread::yield();
  work_.reset();
  loop.shutdown();
}

AsioStrand::AsioStrand(std::shared_ptr<AsioCore> core)
    : core_(std::move(core)), executor_(asio::make_strand(core_->loop)) {}

void AsioStrand::post(Task task) {
  if (!core_->enter()) return;
  asio::post(executor_, [t = std::move(task)]() mutable { t(); });
  core_->leave();
}

Timer AsioStrand::after(Duration delay, Task task) {
  if (!core_->enter()) return {};
  auto state = std::make_shared<AsioPending::State>(shared_from_this());
  state->timer.expires_after(delay);
  // The waiting operation owns the task, so that the end of the loop frees it even where the task
  // owns its own Timer.
  state->timer.async_wait([state, t = std::move(task)](const AsioError&) mutable {
    if (std::exchange(state->wanted, false)) t();
  });
  core_->leave();
  return Timer(std::make_unique<AsioPending>(std::move(state)));
}

std::shared_ptr<AsioStrand> asio_strand(const std::shared_ptr<Strand>& strand) {
  auto ours = std::dynamic_pointer_cast<AsioStrand>(strand);
  CHECK(ours != nullptr);
  return ours;
}

std::string reason(const AsioError& error) {
  std::string text = error.message();
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

AsioRuntime::AsioRuntime(unsigned threads) : core_(std::make_shared<AsioCore>(threads)) {}

AsioRuntime::~AsioRuntime() { stop(); }

void AsioRuntime::stop() { core_->stop(); }

std::shared_ptr<Strand> AsioRuntime::make_strand() { return std::make_shared<AsioStrand>(core_); }

void AsioRuntime::on_signals(std::shared_ptr<Strand> strand, const std::vector<int>& signals,
                             std::function<void(int)> callback) {
  if (!core_->enter()) return;
  auto watch = std::make_shared<SignalWatch>(asio_strand(strand), std::move(callback));
  for (int signal : signals) watch->set.add(signal);
  watch->wait();
  core_->leave();
}

}  // namespace headrace

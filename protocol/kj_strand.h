#pragma once

#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "protocol/strand.h"

// The only bridge between actors and KJ's event loop. Included by the gateway and the client
// library, by nothing else: no KJ object leaves the thread of its loop.
namespace headrace {

// A strand whose tasks run on KJ's loop. Posting costs a mutex and, when the loop may sleep, one
// write to an eventfd. May outlive the loop: then what is posted is dropped.
class KjStrand final : public Strand {
 public:
  KjStrand();
  ~KjStrand() noexcept override;

  Instant now() const override { return std::chrono::steady_clock::now(); }
  void post(Task task) override;
  Timer after(Duration delay, Task task) override;

 private:
  friend class KjThread;
  struct Delayed;
  // On the loop's thread: runs what is posted until close() was called there.
  kj::Promise<void> run(kj::UnixEventPort& port, kj::Timer& timer);
  kj::Promise<void> turn();
  void end();  // nothing runs any more; what waits is destroyed here

  std::mutex mutex_;
  std::vector<Task> tasks_;  // guarded
  bool ended_ = false;       // guarded
  int event_ = -1;           // eventfd

  // Of the loop's thread.
  bool closing_ = false;
  kj::Timer* timer_ = nullptr;
  kj::Own<kj::UnixEventPort::FdObserver> observer_;
};

// A thread with a KJ loop and its strand.
class KjThread {
 public:
  KjThread();   // returns when the loop runs
  ~KjThread();  // stop()
  KjThread(const KjThread&) = delete;

  const std::shared_ptr<KjStrand>& strand() const { return strand_; }
  kj::AsyncIoContext& io() { return *io_; }  // on the thread only

  // Runs `body` on the thread and waits until it returned. Not from the thread itself.
  void run(std::function<void()> body);
  // Runs `last` there, which drops whatever belongs to the loop (capabilities, promises, timers),
  // then ends the loop and joins. Once; later calls do nothing.
  void stop(std::function<void()> last = {});

 private:
  void main(std::function<void()> ready);

  std::shared_ptr<KjStrand> strand_;
  kj::AsyncIoContext* io_ = nullptr;
  std::thread thread_;
};

}  // namespace headrace

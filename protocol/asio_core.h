#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "protocol/asio_runtime.h"

// Shared by the asio_*.cc and by nothing else.
namespace headrace {

namespace asio = boost::asio;
using AsioExecutor = asio::strand<asio::io_context::executor_type>;
using AsioError = boost::system::error_code;
using Socket = asio::basic_stream_socket<asio::ip::tcp, AsioExecutor>;
using AsioTimer =
    asio::basic_waitable_timer<std::chrono::steady_clock,
                               asio::wait_traits<std::chrono::steady_clock>, AsioExecutor>;

// An io_context that can be emptied while strands still refer to it.
class AsioLoop : public asio::io_context {
 public:
  explicit AsioLoop(int threads) : asio::io_context(threads) {}
  using asio::io_context::shutdown;
};

// Outlives the runtime for as long as a strand or a handle does.
struct AsioCore {
  explicit AsioCore(unsigned threads);
  void stop();
  // False once stopped; else true and shutdown waits for leave(), so that nothing is queued into a
  // loop that nobody will empty again.
  bool enter();
  void leave() { entered_.fetch_sub(1); }

  AsioLoop loop;
  std::atomic<int> flushing{0};  // closed links that still hold bytes to send
  std::atomic<size_t> lookups{0};

 private:
  void run_thread();

  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> entered_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  unsigned running_ = 0;  // threads inside loop.run()
  std::vector<std::thread> threads_;
};

class AsioStrand final : public Strand, public std::enable_shared_from_this<AsioStrand> {
 public:
  explicit AsioStrand(std::shared_ptr<AsioCore> core);
  Instant now() const override { return std::chrono::steady_clock::now(); }
  void post(Task task) override;
  Timer after(Duration delay, Task task) override;

  const AsioExecutor& executor() const { return executor_; }
  AsioCore& core() { return *core_; }
  bool here() const { return executor_.running_in_this_thread(); }

 private:
  std::shared_ptr<AsioCore> core_;
  AsioExecutor executor_;
};

// The strand as one of ours: anything else is the caller's mistake.
std::shared_ptr<AsioStrand> asio_strand(const std::shared_ptr<Strand>& strand);

// "Connection refused" -> "connection refused": fits into the middle of a line.
std::string reason(const AsioError& error);

// A connected socket as a Link.
std::unique_ptr<Link> make_asio_link(std::shared_ptr<AsioStrand> strand, Socket socket,
                                     LinkLimits limits);

}  // namespace headrace

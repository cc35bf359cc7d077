#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "protocol/link.h"
#include "protocol/slowdown.h"
#include "protocol/strand.h"

namespace headrace {

struct AsioCore;  // asio_core.h: the event loop, shared by all that may outlive the runtime

// The real event loop and its threads. Start here in a `main`: one runtime, a strand an actor, one
// AsioNetwork. The only door to Asio.
//
// Order of an end: stop() (or the destructor, never on a thread of the runtime) lets links that
// were closed send what they still hold (kFlushMax), ends the threads (kStopMax; a task that runs
// longer is our own mistake and aborts), then destroys every task, timer and socket that waits.
// Strands that live longer drop whatever is posted to them.
class AsioRuntime {
 public:
  static constexpr Duration kFlushMax = 1s * kSlowdown;
  static constexpr Duration kStopMax = 10s;

  explicit AsioRuntime(unsigned threads = 1);
  ~AsioRuntime();
  AsioRuntime(const AsioRuntime&) = delete;
  AsioRuntime& operator=(const AsioRuntime&) = delete;

  std::shared_ptr<Strand> make_strand();

  // Calls back on `strand` at each of these signals from now on, until the end of the runtime.
  void on_signals(std::shared_ptr<Strand> strand, const std::vector<int>& signals,
                  std::function<void(int)> callback);

  void stop();  // may be called more than once

 private:
  friend class AsioNetwork;
  std::shared_ptr<AsioCore> core_;
};

// TCP with TCP_NODELAY. Strands given to it are those of its runtime. Names are resolved off the
// loop; a dial tries each address until its deadline. Handles (links, listeners) are used on their
// strand; destroying one elsewhere is allowed and takes effect a moment later.
class AsioNetwork final : public Network {
 public:
  static constexpr size_t kLookupsMax = 16;      // names being resolved at a time
  static constexpr Duration kListenLookup = 5s;  // for the name to listen on

  explicit AsioNetwork(AsioRuntime& runtime) : core_(runtime.core_) {}

  // Errors: kUnavailable (refused, no such host), kDeadline; each names the endpoint.
  void dial(const Endpoint& to, Duration deadline, LinkLimits limits,
            std::shared_ptr<Strand> strand,
            std::function<void(Result<std::unique_ptr<Link>>)> done) override;
  Result<std::unique_ptr<Listener>> listen(
      const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
      std::function<void(std::unique_ptr<Link>)> on_accept) override;

 private:
  std::shared_ptr<AsioCore> core_;
};

}  // namespace headrace

#pragma once

#include <memory>

#include "coordinator/dispatcher.h"
#include "protocol/link.h"
#include "protocol/random.h"

namespace headrace::coordinator {

struct GatewayOptions {
  Endpoint listen{"127.0.0.1", 7400};  // port 0: any
  Duration drain = 2s;                 // what running calls get at the end
};

// The client edge: Cap'n Proto RPC (protocol/api.capnp) on a KJ loop with a thread of its own. Each
// connection gets its own RPC system under a guarded stream; each call becomes messages to the
// Dispatcher. Nothing of KJ is visible here.
//
// Limits. In words: kConnectionsMax connections (one more takes the place of the oldest that has
// said nothing yet, else it is closed at once); kOpenCallsMax calls a connection that run (more are
// refused by a result). By closing the connection: a message above kFrameBytesMax, or
// kFirstFrameBytesMax for the first; kQuestionsMax questions of any kind not yet answered and
// finished; no word within kFirstWordWithin; a message that stands still (guarded_stream.h); an
// answer that is not read for kUnreadWithin; holding most when all together hold kHeldBytesMax. By
// waiting: questions for status while kAnswerBytesMax of answers are not finished; whoever asks
// much, for a turn among all who do (guarded_stream.h). While a client does not read what it was
// sent, no more than kUnreadBytesMax is read from it, and the system buffers as much for it.
class Gateway {
 public:
  static constexpr size_t kConnectionsMax = 1024;
  static constexpr Duration kFirstWordWithin = 5s;  // of a connection; it is closed after that
  static constexpr uint32_t kOpenCallsMax = 256;
  // Room above kOpenCallsMax for short questions and for calls that are being refused.
  static constexpr uint32_t kQuestionsMax = kOpenCallsMax + 32;
  static constexpr uint64_t kFrameBytesMax = 1 << 20;
  static constexpr uint64_t kFirstFrameBytesMax = 64 << 10;
  static constexpr uint64_t kUnreadBytesMax = 64 << 10;
  static constexpr Duration kUnreadWithin = 60s;
  // In each round of the loop: what connections say that nothing is known of, questions of those that
  // ask much, answers that many get at once; new connections.
  static constexpr uint32_t kTurnsAtOnce = 2;
  static constexpr uint32_t kAcceptsAtOnce = 4;
  // Of answers that a connection has not finished; then its questions for status wait.
  static constexpr uint64_t kAnswerBytesMax = 64 << 10;
  // Of all that all connections make us hold; then the one that holds most is closed.
  static constexpr uint64_t kHeldBytesMax = 20 << 20;
  static constexpr uint64_t kConnectionBytes = 12 << 10;  // what each is counted with at least

  // kUnavailable with one line that names the address: port in use, no such host.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options, Ref<Dispatcher> dispatcher,
                                                Random& random);
  // stop(). The Dispatcher may live longer or shorter.
  ~Gateway();
  Gateway(const Gateway&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }  // the real port
  // Connections that were closed because they broke a rule of the protocol or a limit.
  uint64_t offenders() const;
  // Accepts no more, lets running answers end for `drain` at most, drops the rest, joins the
  // thread. Blocks; not from a strand that the Dispatcher needs.
  void stop();

 private:
  class Door;
  explicit Gateway(std::unique_ptr<Door> door);
  std::unique_ptr<Door> door_;
  Endpoint endpoint_;
};

}  // namespace headrace::coordinator

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
// Limits: kConnectionsMax connections (more are closed at once), kOpenCallsMax open calls a
// connection (more are refused), kFrameBytesMax a message (more closes its connection).
class Gateway {
 public:
  static constexpr size_t kConnectionsMax = 1024;
  static constexpr Duration kFirstWordWithin = 5s;  // of a connection; it is closed after that
  static constexpr uint32_t kOpenCallsMax = 256;
  static constexpr uint64_t kFrameBytesMax = 1 << 20;

  // kUnavailable with one line that names the address: port in use, no such host.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options, Ref<Dispatcher> dispatcher,
                                                Random& random);
  // stop(). The Dispatcher may live longer or shorter.
  ~Gateway();
  Gateway(const Gateway&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }  // the real port
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

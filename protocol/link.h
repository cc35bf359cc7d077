#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "protocol/result.h"
#include "protocol/strand.h"

namespace headrace {

using Bytes = std::vector<std::byte>;

struct Endpoint {
  std::string host;   // name or address
  uint16_t port = 0;  // 0 when listening: any free port
  bool operator==(const Endpoint&) const = default;
};

// "HOST:PORT", "[V6]:PORT" -> Endpoint; an error names the text and what is wrong with it.
Result<Endpoint> parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

struct LinkLimits {
  size_t frame_bytes_max = 8u << 20;    // a longer announcement closes the link
  // The same for the first frame that arrives: a stranger's. Memory for it grows as it comes. Kept
  // where bytes come from outside of the process (asio_link).
  size_t first_frame_bytes_max = 8u << 20;
  size_t unsent_bytes_max = 64u << 20;  // more waiting to be sent closes the link
  Duration frame_deadline = 5s;         // from the last progress inside a begun frame
};

// Whole messages (frames), in order, over one connection: u32 little-endian length, then bytes.
// Lives on one strand: every call and every callback happens there. Destroying it closes it.
// A closed peer is reported at once through on_closed (once, never from inside a call).
class Link {
 public:
  virtual ~Link() = default;
  // Begins reading. Frames and the closing (with its reason) are reported from here on.
  virtual void start(std::function<void(Bytes)> on_frame,
                     std::function<void(Status)> on_closed) = 0;
  // Queues a frame; never blocks. After closing: dropped.
  virtual void send(Bytes frame) = 0;
  // Bytes accepted by send() and not yet handed to the system.
  virtual size_t unsent() const = 0;
  // Called whenever unsent() has fallen to `level` or below after having been above it.
  virtual void on_drained(size_t level, std::function<void()> callback) = 0;
  // Lets queued frames go out (bounded by the frame deadline), then closes; no callback follows.
  virtual void close() = 0;
  virtual std::string peer() const = 0;  // for messages: "127.0.0.1:7401"
};

// Accepts links until destroyed.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual Endpoint endpoint() const = 0;  // the real port
};

// Everything an actor may do to the network. Callbacks run on the strand given.
class Network {
 public:
  virtual ~Network() = default;
  virtual void dial(const Endpoint& to, Duration deadline, LinkLimits limits,
                    std::shared_ptr<Strand> strand,
                    std::function<void(Result<std::unique_ptr<Link>>)> done) = 0;
  // Error kUnavailable names the address when the port is in use.
  virtual Result<std::unique_ptr<Listener>> listen(
      const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
      std::function<void(std::unique_ptr<Link>)> on_accept) = 0;
};

}  // namespace headrace

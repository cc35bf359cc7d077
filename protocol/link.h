#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
  size_t frame_bytes_max = 8u << 20;  // a longer announcement closes the link
  // The same for the first frame that arrives: a stranger's. Memory for it grows as it comes. Kept
  // where bytes come from outside of the process (asio_link).
  size_t first_frame_bytes_max = 8u << 20;
  size_t unsent_bytes_max = 64u << 20;  // more waiting to be sent closes the link
  Duration frame_deadline = 5s;         // from the last progress inside a begun frame
};

// Bytes of a frame that are not copied: they stay where they are, unchanged, and `held` with them,
// until the frame has left or the link is closed.
struct Payload {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> held{};
};

// Where the rest of a frame goes, once its beginning is there.
struct Landing {
  enum class Way : uint8_t {
    kFrame,  // the frame is reported whole
    kAt,     // to `at`, which has room for it; then the frame's head alone is reported
    kWait,   // nothing is read any more until resume(); then it is asked again
  };
  Way way = Way::kFrame;
  std::byte* at = nullptr;
};
using Land = std::function<Landing(std::span<const std::byte> head, size_t rest)>;

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
  // One frame of head and payload. Where bytes leave the process the payload is read in place, and
  // only in tasks of the strand; after close() it is not read any more.
  virtual void send(Bytes head, Payload payload);
  // Bytes accepted by send() and not yet handed to the system.
  virtual size_t unsent() const = 0;
  // Called whenever unsent() has fallen to `level` or below after having been above it.
  virtual void on_drained(size_t level, std::function<void()> callback) = 0;
  // From the next frame on, `land` is asked about each one that is longer than `head` bytes (more
  // than 0), from inside a task of this link; it does not close the link. What it names is written
  // only in tasks of the strand, and not after close().
  virtual void land(size_t head, Land land) = 0;
  // After Way::kWait. From outside of a callback or from inside.
  virtual void resume() = 0;
  // Lets queued frames go out (bounded by the frame deadline), then closes; no callback follows.
  // Where a payload is among them the link ends at once instead.
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

#pragma once

#include <capnp/serialize-async.h>

#include <cstdint>

#include "protocol/strand.h"

namespace headrace {

struct GuardLimits {
  uint32_t segments_max = 64;
  uint64_t bytes_max = 1 << 20;     // of one message, its table of segments included
  Duration progress_deadline = 5s;  // inside of a begun message, from its last byte
  int send_buffer = 16 << 10;       // reported to the library as its window
};

// Cap'n Proto messages over a byte stream, for peers that are not trusted. The library's own reader
// (0.9.2) believes the segment table and allocates first; here counts and sizes are checked before
// a byte is reserved. A message that breaks a limit throws; the RPC system answers with an abort
// and closes. Lives on the KJ loop; the stream and timer must outlive it.
class GuardedStream final : public capnp::MessageStream {
 public:
  GuardedStream(kj::AsyncIoStream& stream, kj::Timer& timer, GuardLimits limits)
      : stream_(stream), timer_(timer), limits_(limits) {}

  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> tryReadMessage(
      kj::ArrayPtr<kj::AutoCloseFd> fd_space, capnp::ReaderOptions options,
      kj::ArrayPtr<capnp::word> scratch) override;
  kj::Promise<void> writeMessage(
      kj::ArrayPtr<const int> fds,
      kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) override;
  kj::Promise<void> writeMessages(
      kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) override;
  kj::Maybe<int> getSendBufferSize() override { return limits_.send_buffer; }
  kj::Promise<void> end() override;
  // Whether the peer has said anything at all.
  bool spoken_to() const { return spoken_to_; }

 private:
  struct Incoming;
  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> read_table(kj::Own<Incoming> in);
  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> read_body(kj::Own<Incoming> in);
  // Fills [at, end), in pieces that each have the progress deadline.
  kj::Promise<void> fill(kj::byte* at, kj::byte* end);

  kj::AsyncIoStream& stream_;
  kj::Timer& timer_;
  GuardLimits limits_;
  bool spoken_to_ = false;
};

}  // namespace headrace

#include "protocol/guarded_stream.h"

#include <capnp/serialize.h>
#include <kj/debug.h>

#include <cstring>

namespace headrace {

using capnp::word;

// One message on its way: `head` are the first eight bytes (count of segments less one, size of the
// first), then the rest of the table, then all segments, in one flat array as on the wire.
struct GuardedStream::Incoming {
  kj::byte head[8];
  uint32_t segments = 0;
  size_t table_words = 0;
  kj::Array<word> table;
  kj::Array<word> message;
  capnp::ReaderOptions options;
};

namespace {

uint32_t u32_at(const kj::byte* at) {  // little-endian
  return uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
}

}  // namespace

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> GuardedStream::tryReadMessage(
    kj::ArrayPtr<kj::AutoCloseFd>, capnp::ReaderOptions options, kj::ArrayPtr<word>) {
  auto in = kj::heap<Incoming>();
  in->options = options;
  // Between messages a peer may be silent for as long as it likes.
  auto first = stream_.tryRead(in->head, 1, sizeof in->head);
  return first.then([this, in = kj::mv(in)](
                        size_t got) mutable -> kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> {
    if (got == 0) return kj::Maybe<capnp::MessageReaderAndFds>(nullptr);
    spoken_to_ = true;
    auto rest = fill(in->head + got, in->head + sizeof in->head);
    return rest.then([this, in = kj::mv(in)]() mutable { return read_table(kj::mv(in)); });
  });
}

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> GuardedStream::read_table(kj::Own<Incoming> in) {
  const uint64_t segments = uint64_t{u32_at(in->head)} + 1;
  KJ_REQUIRE(segments <= limits_.segments_max, "message has more segments than the limit", segments,
             limits_.segments_max);
  in->segments = static_cast<uint32_t>(segments);
  in->table_words = segments / 2 + 1;  // u32 count, a u32 each, padded to words
  in->table = kj::heapArray<word>(in->table_words);
  std::memcpy(in->table.begin(), in->head, sizeof in->head);
  auto table = in->table.asBytes();
  auto rest = fill(table.begin() + sizeof in->head, table.end());
  return rest.then([this, in = kj::mv(in)]() mutable { return read_body(kj::mv(in)); });
}

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> GuardedStream::read_body(kj::Own<Incoming> in) {
  const auto table = in->table.asBytes();
  uint64_t words = in->table_words;
  for (uint32_t i = 0; i < in->segments; ++i) words += u32_at(table.begin() + 4 + 4 * size_t{i});
  KJ_REQUIRE(words <= limits_.bytes_max / sizeof(word), "message is larger than the limit",
             words * sizeof(word), limits_.bytes_max);
  in->message = kj::heapArray<word>(words);
  std::memcpy(in->message.begin(), in->table.begin(), table.size());
  auto bytes = in->message.asBytes();
  auto rest = fill(bytes.begin() + table.size(), bytes.end());
  return rest.then([in = kj::mv(in)]() mutable -> kj::Maybe<capnp::MessageReaderAndFds> {
    auto reader = kj::heap<capnp::FlatArrayMessageReader>(in->message, in->options);
    return capnp::MessageReaderAndFds{reader.attach(kj::mv(in->message)), nullptr};
  });
}

kj::Promise<void> GuardedStream::fill(kj::byte* at, kj::byte* end) {
  if (at == end) return kj::READY_NOW;
  const auto deadline = limits_.progress_deadline.count() * kj::NANOSECONDS;
  return timer_.timeoutAfter(deadline, stream_.tryRead(at, 1, static_cast<size_t>(end - at)))
      .then([this, at, end](size_t got) -> kj::Promise<void> {
        KJ_REQUIRE(got > 0, "the stream ended inside of a message");
        return fill(at + got, end);
      });
}

kj::Promise<void> GuardedStream::writeMessage(
    kj::ArrayPtr<const int>, kj::ArrayPtr<const kj::ArrayPtr<const word>> segments) {
  return capnp::writeMessage(stream_, segments);
}

kj::Promise<void> GuardedStream::writeMessages(
    kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const word>>> messages) {
  return capnp::writeMessages(stream_, messages);
}

kj::Promise<void> GuardedStream::end() {
  stream_.shutdownWrite();
  return kj::READY_NOW;
}

}  // namespace headrace

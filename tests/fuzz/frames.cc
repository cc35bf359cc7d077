// A byte stream of a client: the guarded stream's verdict on every message has to be the one that
// the format's own rules give, worked out here by hand from the same bytes.
#include <capnp/serialize-async.h>
#include <kj/async-io.h>

#include <cstring>
#include <optional>

#include "protocol/api.capnp.h"
#include "protocol/guarded_stream.h"
#include "tests/fuzz/input.h"

namespace headrace {
namespace {

constexpr GuardLimits kLimits{.segments_max = 8, .bytes_max = 4096};

// Bytes of the message at the front, table included; none: it has to be refused.
std::optional<size_t> rightful(std::span<const uint8_t> bytes) {
  const auto u32 = [&](size_t at) -> uint64_t {
    uint32_t v = 0;
    std::memcpy(&v, bytes.data() + at, 4);
    return v;
  };
  if (bytes.size() < 8) return {};
  const uint64_t segments = u32(0) + 1;
  if (segments > kLimits.segments_max) return {};
  const size_t table = (4 + 4 * segments + 7) / 8 * 8;
  if (bytes.size() < table) return {};
  if (segments % 2 == 0 && u32(table - 4) != 0) return {};  // padding
  uint64_t total = table;
  for (uint64_t i = 0; i < segments; ++i) total += 8 * u32(4 + 4 * i);
  if (total > kLimits.bytes_max || total > bytes.size()) return {};
  return total;
}

void look_into(capnp::MessageReader& reader) {
  // Whatever the pointers say: an exception at worst.
  auto ignored = kj::runCatchingExceptions([&] {
    const auto request = reader.getRoot<api::GenerateRequest>();
    (void)request.totalSize();
    if (request.getPrompt().isText()) (void)request.getPrompt().getText().size();
  });
}

void feed(kj::AsyncIoContext& io, std::span<const uint8_t> bytes) {
  auto pipe = kj::newTwoWayPipe();
  GuardedStream stream(*pipe.ends[0], io.provider->getTimer(), kLimits);
  auto writing = pipe.ends[1]
                     ->write(bytes.data(), bytes.size())
                     .then([&] { pipe.ends[1]->shutdownWrite(); })
                     .eagerlyEvaluate([](kj::Exception&&) {});
  while (true) {
    const auto expected = bytes.empty() ? 0 : rightful(bytes);
    bool refused = false;
    bool ended = false;
    auto thrown = kj::runCatchingExceptions([&] {
      auto next = stream.tryReadMessage(nullptr, {}, nullptr).wait(io.waitScope);
      KJ_IF_MAYBE (message, next)
        look_into(*message->reader);
      else
        ended = true;
    });
    refused = thrown != nullptr;
    CHECK(ended == bytes.empty());
    CHECK(refused == !expected.has_value());
    if (refused || ended) return;
    bytes = bytes.subspan(*expected);
  }
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static kj::AsyncIoContext io = kj::setupAsyncIo();
  headrace::feed(io, {data, size});
  return 0;
}

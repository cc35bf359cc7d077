// Any bytes as a mesh message: refused, or a value whose wire form stays the same from then on.
#include <string>

#include "protocol/codec.h"
#include "tests/fuzz/input.h"

namespace headrace {
namespace {

// Compared as bytes: a message may hold a NaN, which equals nothing.
template <class Decode>
void round_trip(std::span<const std::byte> frame, const Decode& decode) {
  const auto first = decode(frame);
  if (!first) {
    CHECK(!first.error().message.empty());
    return;
  }
  const Bytes once = encode(*first);
  const auto second = decode(std::span<const std::byte>(once));
  CHECK(second.has_value());
  CHECK(encode(*second) == once);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  fuzz::Input input(data, size);
  const uint8_t kind = input.byte();
  const auto frame = std::as_bytes(input.take(input.left()));
  switch (kind % 3) {
    case 0:
      round_trip(frame, decode_to_worker);
      break;
    case 1:
      round_trip(frame, decode_to_coordinator);
      break;
    default:
      round_trip(frame, decode_tokenizer);
  }
  return 0;
}

#include "protocol/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <cstring>

#include "protocol/limits.h"
#include "protocol/link.h"
#include "protocol/mesh.capnp.h"
#include "protocol/random.h"
#include "tests/protocol/codec_samples.h"

namespace headrace {
namespace {

Bytes flat(capnp::MallocMessageBuilder& builder) {
  const auto array = capnp::messageToFlatArray(builder);
  const auto bytes = array.asBytes();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.begin());
  return Bytes(begin, begin + bytes.size());
}

TEST_CASE("a frame of the codec fits a frame of the link") {
  CHECK(limits::kFrameBytes == LinkLimits{}.frame_bytes_max);
  for (const auto& m : sample_to_worker()) CHECK(encode(m).size() <= limits::kFrameBytes);
  for (const auto& m : sample_to_coordinator()) CHECK(encode(m).size() <= limits::kFrameBytes);
}

TEST_CASE("a kind of message that we do not know is refused by its number") {
  for (uint16_t kind : {7, 10, 100, 0xFFFF}) {
    capnp::MallocMessageBuilder builder;
    builder.initRoot<wire::ToWorker>().initWelcome();
    Bytes frame = flat(builder);
    // Word 0: segment table, 1: root pointer, 2: data section, whose first 16 bits are the union's.
    std::memcpy(frame.data() + 16, &kind, 2);
    const auto worker = decode_to_worker(frame);
    REQUIRE_FALSE(worker);
    CHECK(worker.error() ==
          Status{Errc::kInvalid, "ToWorker: unknown kind of message " + std::to_string(kind)});
    if (kind < 10) continue;
    const auto coordinator = decode_to_coordinator(frame);
    REQUIRE_FALSE(coordinator);
    CHECK(coordinator.error().message ==
          "ToCoordinator: unknown kind of message " + std::to_string(kind));
  }
}

TEST_CASE("an unaligned frame is a frame") {
  const Bytes frame = encode(sample_to_worker().back());
  for (size_t shift = 0; shift < 8; ++shift) {
    Bytes shifted(shift);
    shifted.insert(shifted.end(), frame.begin(), frame.end());
    CHECK(decode_to_worker(std::span(shifted).subspan(shift)));
  }
}

TEST_CASE("pointers that lead outside or in circles are refused") {
  // The root pointer refers to itself; to a far segment that is not there; beyond the end.
  for (uint64_t pointer : {0x00000001'FFFFFFFCull, 0x00000009'00000002ull, 0x00010001'00000400ull,
                           0x7FFFFFFF'00000001ull, 0x00000000'00000003ull}) {
    Bytes frame(16);
    const uint64_t table = uint64_t{1} << 32;
    std::memcpy(frame.data(), &table, 8);
    std::memcpy(frame.data() + 8, &pointer, 8);
    CAPTURE(pointer);
    (void)decode_tokenizer(frame);
    (void)decode_to_coordinator(frame);
    (void)decode_to_worker(frame);
  }
}

TEST_CASE("random bytes with a right table never do harm") {
  SeededRandom random(5);
  for (int round = 0; round < 20'000; ++round) {
    const size_t words = random.next() % 24;
    Bytes frame(8 + words * 8);
    const uint64_t table = static_cast<uint64_t>(words) << 32;
    std::memcpy(frame.data(), &table, 8);
    for (size_t i = 8; i < frame.size(); ++i) {
      const uint64_t r = random.next();
      frame[i] = static_cast<std::byte>(r % 3 == 0 ? r >> 8 : (r >> 8) % 4);
    }
    const auto clear = [](const auto& result) {
      return result.has_value() ||
             (result.error().code == Errc::kInvalid && !result.error().message.empty());
    };
    CHECK(clear(decode_to_worker(frame)));
    CHECK(clear(decode_to_coordinator(frame)));
    CHECK(clear(decode_tokenizer(frame)));
  }
}

}  // namespace
}  // namespace headrace

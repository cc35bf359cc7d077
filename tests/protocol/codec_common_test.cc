#include "protocol/codec_common.h"

#include <doctest/doctest.h>

#include <cstring>

namespace headrace::codec {
namespace {

// A frame from 32-bit words.
Bytes words(const std::vector<uint32_t>& values) {
  Bytes bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string why(const Bytes& frame) { return check_segments(frame).message; }

TEST_CASE("the segment table adds up to the frame or the frame is refused") {
  CHECK(why(words({0, 0})) == "");
  CHECK(why(words({0, 1, 7, 7})) == "");
  CHECK(why(words({1, 1, 1, 0, 7, 7, 8, 8})) == "");  // two segments, padded table
  CHECK(why({}) == "frame: 0 bytes are no whole words");
  CHECK(why(Bytes(12)) == "frame: 12 bytes are no whole words");
  CHECK(why(words({0, 1})) == "frame: segments of 16 bytes in a frame of 8");
  CHECK(why(words({0, 0, 7, 7})) == "frame: segments of 8 bytes in a frame of 16");
  CHECK(why(words({0, 0xFFFFFFFF})) == "frame: segments of 34359738368 bytes in a frame of 8");
  CHECK(why(words({63, 0})) == "frame: cut inside the segment table");
  CHECK(why(words({64, 0})) == "frame: 65 segments, the limit is 64");
  // The count that wraps to none in 32 bits.
  CHECK(why(words({0xFFFFFFFF, 0})) == "frame: 4294967296 segments, the limit is 64");
  CHECK(why(words({0xFFFFFFFE, 0})) == "frame: 4294967295 segments, the limit is 64");
  std::vector<uint32_t> most(64 + 2, 0);
  most[0] = 63;
  CHECK(why(words(most)) == "");
}

TEST_CASE("a frame above its limit is not looked at") {
  Cursor cursor("Test");
  bool called = false;
  const Status status =
      read_frame(Bytes(24), 16, cursor, [&](capnp::MessageReader&) { called = true; });
  CHECK(status == Status{Errc::kInvalid, "frame: 24 bytes, the limit is 16"});
  CHECK_FALSE(called);
}

TEST_CASE("one small list read again and again meets the traversal limit") {
  capnp::MallocMessageBuilder builder;
  auto b = builder.initRoot<wire::Ping>();
  b.initLive(100);
  const auto flat = capnp::messageToFlatArray(builder);
  const auto bytes = flat.asBytes();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.begin());
  Cursor cursor("Ping");
  const Status status =
      read_frame({begin, bytes.size()}, 1 << 20, cursor, [&](capnp::MessageReader& reader) {
        const auto root = reader.getRoot<wire::Ping>();
        for (int i = 0; i < 10; ++i) cursor.at("live"), root.getLive();
      });
  CHECK(status.code == Errc::kInvalid);
  CHECK(status.message.starts_with("Ping.live: "));
}

TEST_CASE("codes of a newer peer read as unknown") {
  capnp::MallocMessageBuilder builder;
  auto b = builder.initRoot<wire::Status>();
  Cursor cursor("Status");
  for (uint16_t code = 0; code < 40; ++code) {
    b.setCode(code);
    const Errc want = code < raw(Errc::kUnknown) ? static_cast<Errc>(code) : Errc::kUnknown;
    CHECK(cursor.status(b.asReader()).code == want);
  }
}

TEST_CASE("durations beyond a year are refused, either sign") {
  Cursor cursor("Beat");
  cursor.at("loopLag");
  CHECK(cursor.duration(limits::kDuration.count()) == limits::kDuration);
  CHECK(cursor.duration(-5).count() == -5);
  for (int64_t ns : {INT64_MAX, INT64_MIN, limits::kDuration.count() + 1}) {
    try {
      (void)cursor.duration(ns);
      FAIL("accepted");
    } catch (const Refusal& refusal) {
      CHECK(refusal.status.message.starts_with("Beat.loopLag: "));
    }
  }
}

}  // namespace
}  // namespace headrace::codec

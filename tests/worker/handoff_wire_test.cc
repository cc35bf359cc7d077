#include "worker/handoff_wire.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

handoff::Hello some_hello() {
  handoff::Hello h;
  h.transfer = {1, 2};
  h.attempt = Attempt{3};
  h.prefill = {4, 5};
  h.decode = {6, 7};
  h.layout = {8, 9};
  h.tokens = 1000;
  h.stream = 2;
  h.streams = 5;
  return h;
}

template <class T>
T round_trip(const T& frame) {
  const auto back = decode_handoff(encode_handoff(frame));
  REQUIRE(back.has_value());
  REQUIRE(std::holds_alternative<T>(*back));
  return std::get<T>(*back);
}

TEST_CASE("each frame comes back as it was") {
  handoff::Hello hello = some_hello();
  hello.mac = hello_mac(hello, {10, 11});
  CHECK(round_trip(hello) == hello);
  hello.lane = {LaneKind::kNccl, 22809, 1 << 20, 3, 4};
  CHECK(round_trip(hello) == hello);
  handoff::HelloAck ack{hello.lane, {}};
  ack.mac = ack_mac(hello, ack, {10, 11});
  CHECK(round_trip(ack) == ack);
  CHECK(round_trip(handoff::SlotPosted{}) == handoff::SlotPosted{});
  CHECK(round_trip(handoff::Alive{3}) == handoff::Alive{3});
  const handoff::ChunkEnd end{1, 2, 3, 0xDEADBEEF};
  CHECK(round_trip(end) == end);
  const handoff::Commit commit{4, 99, {5, 6}};
  CHECK(round_trip(commit) == commit);
  const handoff::Verdict verdict{error(Errc::kStale, "an older attempt")};
  CHECK(round_trip(verdict) == verdict);
  CHECK(round_trip(handoff::Verdict{}).status.ok());

  const std::vector<std::byte> data(100, std::byte{42});
  const Bytes frame = encode_handoff(handoff::Slice{1, 2, Generation{3}, 4, data});
  const auto back = decode_handoff(frame);
  REQUIRE(back.has_value());
  const auto& slice = std::get<handoff::Slice>(*back);
  CHECK(slice.chunk == 1);
  CHECK(slice.block == 2);
  CHECK(slice.generation == Generation{3});
  CHECK(slice.offset == 4);
  CHECK(slice.bytes.size() == 100);
  CHECK(std::memcmp(slice.bytes.data(), data.data(), 100) == 0);
}

TEST_CASE("a lane's note comes back, or is too long") {
  const std::vector<std::byte> said(kLaneNoteMax, std::byte{7});
  Bytes frame = encode_handoff(handoff::LaneNote{said});
  const auto back = decode_handoff(frame);
  REQUIRE(back.has_value());
  CHECK(std::ranges::equal(std::get<handoff::LaneNote>(*back).bytes, said));
  for (size_t i = 1; i < frame.size(); ++i) {
    frame[i] ^= std::byte{16};
    CHECK_FALSE(decode_handoff(frame).has_value());
    frame[i] ^= std::byte{16};
  }
  frame.push_back(std::byte{7});
  CHECK_FALSE(decode_handoff(frame).has_value());
}

TEST_CASE("an answer's MAC covers its lane and the hello it answers") {
  const HandoffKey key{10, 11};
  handoff::Hello hello = some_hello();
  hello.mac = hello_mac(hello, key);
  handoff::HelloAck ack{{LaneKind::kNccl, 22809, 4096, 1, 2}, {}};
  ack.mac = ack_mac(hello, ack, key);
  CHECK(ack_mac_ok(hello, ack, key));
  CHECK_FALSE(ack_mac_ok(hello, ack, {10, 12}));
  for (const auto& change : std::vector<std::function<void(LaneTerms&)>>{
           [](LaneTerms& t) { t.kind = LaneKind::kTcp; }, [](LaneTerms& t) { ++t.version; },
           [](LaneTerms& t) { ++t.slot_bytes; }, [](LaneTerms& t) { ++t.host; },
           [](LaneTerms& t) { ++t.device; }}) {
    handoff::HelloAck other = ack;
    change(other.lane);
    CHECK_FALSE(ack_mac_ok(hello, other, key));
    handoff::Hello offer = hello;
    change(offer.lane);
    if (offer.lane != hello.lane) CHECK_FALSE(hello_mac_ok(offer, key));
  }
  handoff::Hello another = hello;
  another.attempt = Attempt{99};
  another.mac = hello_mac(another, key);
  CHECK_FALSE(ack_mac_ok(another, ack, key));
}

TEST_CASE("a frame cut anywhere, or with a byte too many, is refused") {
  handoff::Hello hello = some_hello();
  for (const handoff::Frame& f :
       {handoff::Frame(hello), handoff::Frame(handoff::ChunkEnd{1, 2, 3, 4}),
        handoff::Frame(handoff::Commit{1, 2, {3, 4}}), handoff::Frame(handoff::HelloAck{})}) {
    Bytes bytes = encode_handoff(f);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const auto r = decode_handoff(std::span(bytes).first(n));
      REQUIRE(!r.has_value());
      REQUIRE(r.error().code == Errc::kInvalid);
    }
    bytes.push_back(std::byte{0});
    CHECK(!decode_handoff(bytes).has_value());
  }
  const std::vector<std::byte> one(1);
  const Bytes slice = encode_handoff(handoff::Slice{0, 0, Generation{0}, 0, one});
  CHECK(!decode_handoff(std::span(slice).first(slice.size() - 1)).has_value());  // no bytes
  Bytes longer = slice;
  longer.resize(longer.size() + kSliceBytesMax);
  CHECK(!decode_handoff(longer).has_value());
}

TEST_CASE("wrong magic and another version are told apart") {
  Bytes bytes = encode_handoff(some_hello());
  Bytes magic = bytes;
  magic[1] ^= std::byte{1};
  CHECK(decode_handoff(magic).error().message.find("magic") != std::string::npos);
  bytes[5] = std::byte{9};
  CHECK(decode_handoff(bytes).error().message.find("version 9") != std::string::npos);
}

TEST_CASE("any bytes are taken without harm") {
  SeededRandom random(11);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes(random.next() % 200);
    for (auto& b : bytes) b = static_cast<std::byte>(random.next());
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(random.next() % 9);
    (void)decode_handoff(bytes);
  }
}

TEST_CASE("a code of a newer peer becomes kUnknown") {
  Bytes bytes = encode_handoff(handoff::Verdict{error(Errc::kInvalid, "x")});
  bytes[1] = std::byte{0xFF};
  bytes[2] = std::byte{0x7F};
  CHECK(std::get<handoff::Verdict>(*decode_handoff(bytes)).status.code == Errc::kUnknown);
}

TEST_CASE("a stream that cannot be is refused; a slice's head stands alone") {
  handoff::Hello h = some_hello();
  for (const auto& [stream, streams] :
       {std::pair{0u, 0u}, std::pair{5u, 5u}, std::pair{0u, kHandoffStreamsMax + 1}}) {
    h.stream = stream;
    h.streams = streams;
    CHECK(!decode_handoff(encode_handoff(h)).has_value());
  }
  const std::vector<std::byte> bytes(10, std::byte{3});
  const handoff::Slice slice{1, 2, Generation{3}, 4, bytes};
  const Bytes head = encode_slice_head(slice);
  CHECK(head.size() == kSliceHead);
  const Bytes whole = encode_handoff(slice);
  CHECK(std::equal(head.begin(), head.end(), whole.begin()));
  const auto back = decode_slice_head(head);
  REQUIRE(back.has_value());
  CHECK(back->block == 2);
  CHECK(back->generation == Generation{3});
  CHECK(back->offset == 4);
  CHECK(!decode_slice_head(std::span(head).first(kSliceHead - 1)).has_value());
  const Bytes other = encode_handoff(handoff::Commit{});
  CHECK(!decode_slice_head(std::span(other).first(kSliceHead)).has_value());
}

TEST_CASE("the key signs every field of hello") {
  const HandoffKey key{77, 78};
  handoff::Hello h = some_hello();
  h.mac = hello_mac(h, key);
  CHECK(hello_mac_ok(h, key));
  CHECK(!hello_mac_ok(h, {77, 79}));
  const auto changed = [&](auto change) {
    handoff::Hello other = h;
    change(other);
    return !hello_mac_ok(other, key);
  };
  CHECK(changed([](auto& x) { x.transfer.lo ^= 1; }));
  CHECK(changed([](auto& x) { x.attempt = Attempt{4}; }));
  CHECK(changed([](auto& x) { x.prefill.hi ^= 1; }));
  CHECK(changed([](auto& x) { x.decode.hi ^= 1; }));
  CHECK(changed([](auto& x) { x.layout.lo ^= 1; }));
  CHECK(changed([](auto& x) { x.tokens ^= 1; }));
  CHECK(changed([](auto& x) { x.first ^= 1; }));
  CHECK(changed([](auto& x) { x.stream ^= 1; }));
  CHECK(changed([](auto& x) { x.streams ^= 1; }));
  CHECK(changed([](auto& x) { x.mac[31] ^= std::byte{1}; }));
}

TEST_CASE("the layout differs with all that changes KV bytes, and with nothing else") {
  ModelCard card;
  card.kv_layout = "f16";
  card.block_tokens = 32;
  card.name = "a";
  const Digest digest = layout_digest(card);
  ModelCard other = card;
  other.name = "b";
  CHECK(layout_digest(other) == digest);
  other = card;
  other.weights.lo = 1;
  CHECK(layout_digest(other) != digest);
  other = card;
  other.numerics = "x";
  CHECK(layout_digest(other) != digest);
  other = card;
  other.kv_layout = "fp8";
  CHECK(layout_digest(other) != digest);
  other = card;
  other.block_tokens = 16;
  CHECK(layout_digest(other) != digest);
}

TEST_CASE("the digest of a hand-off knows order, index and sum") {
  ChunkDigest a;
  a.add(0, 1);
  a.add(1, 2);
  ChunkDigest b;
  b.add(0, 2);
  b.add(1, 1);
  ChunkDigest c;
  c.add(0, 1);
  CHECK(a.value() != b.value());
  CHECK(a.value() != c.value());
  c.add(1, 2);
  CHECK(a.value() == c.value());
}

}  // namespace
}  // namespace headrace::worker

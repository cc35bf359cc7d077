#include "worker/handoff_receiver.h"

#include <doctest/doctest.h>

#include <numeric>

#include "tests/worker/handoff_rig.h"
#include "tests/worker/raw_sender.h"
#include "worker/crc32c.h"

namespace headrace::worker {
namespace {

constexpr uint64_t kBlockBytes = HandoffRig::kBlockBytes;

// A right hand-off of 40 tokens (3 blocks) in two chunks, frame by frame.
std::vector<handoff::Frame> right(const HandoffRig& rig, const ReceiveGrant& g) {
  std::vector<handoff::Frame> frames;
  ChunkDigest digest;
  uint32_t chunk = 0;
  for (const auto& [first, count] : {std::pair{0u, 2u}, std::pair{2u, 1u}}) {
    uint32_t crc = 0;
    for (uint32_t b = first; b < first + count; ++b) {
      for (uint32_t offset = 0; offset < kBlockBytes; offset += 500) {
        const auto bytes =
            std::span<const std::byte>(rig.source).subspan(b * kBlockBytes + offset, 500);
        frames.emplace_back(handoff::Slice{chunk, b, g.blocks[b].generation, offset, bytes});
        crc = crc32c(bytes, crc);
      }
    }
    frames.emplace_back(handoff::ChunkEnd{chunk, first, count, crc});
    digest.add(chunk++, crc);
  }
  frames.emplace_back(handoff::Commit{chunk, g.tokens, digest.value()});
  return frames;
}

Status outcome(const std::function<void(std::vector<handoff::Frame>&)>& change) {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  REQUIRE(sender.acked);
  auto frames = right(rig, g);
  change(frames);
  for (const auto& f : frames) sender.send(f);
  rig.world.run_for(3s);
  REQUIRE(rig.ended.contains(g.transfer));
  REQUIRE(sender.verdict.has_value());
  CHECK(sender.verdict->code == rig.ended.at(g.transfer).code);
  CHECK(sender.verdict->code != Errc::kInvalid);  // it may be tried again
  CHECK(sender.closed);
  // Nothing outside the granted blocks (0, 2, 4) was ever written.
  for (uint32_t b = 1; b < HandoffRig::kBlocks; b += b < 4 ? 2 : 1) {
    if (b == 4) continue;
    const auto from = rig.target.begin() + static_cast<ptrdiff_t>(b * kBlockBytes);
    CHECK(std::all_of(from, from + static_cast<ptrdiff_t>(kBlockBytes),
                      [](std::byte x) { return x == std::byte{0}; }));
  }
  return rig.ended.at(g.transfer);
}

TEST_CASE("a right hand-off is accepted") {
  CHECK(outcome([](auto&) {}).ok());
}

TEST_CASE("the time on the wire is that inside of chunks") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  rig.world.run_for(200ms);  // the sender computes
  for (const auto& frame : right(rig, g)) {
    sender.send(frame);  // 10 ms each
    if (std::holds_alternative<handoff::ChunkEnd>(frame)) rig.world.run_for(500ms);
  }
  REQUIRE(rig.ended.at(g.transfer).ok());
  const ReceiveTimes& times = rig.times.at(g.transfer);
  CHECK(times.bytes == 3 * kBlockBytes);
  CHECK(times.on_wire > 35ms);  // of four slices, and of two
  CHECK(times.on_wire < 60ms);
}

TEST_CASE("what a link does of its limit is measured inside of chunks") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  for (const auto& frame : right(rig, g)) {
    sender.send(frame);
    rig.world.run_for(190ms);
    if (std::holds_alternative<handoff::ChunkEnd>(frame)) rig.world.run_for(500ms);
  }
  REQUIRE(rig.ended.at(g.transfer).ok());
  // Each slice is there at once: the first four have taken 0.6 s, which tells a rate; both chunks
  // together 1.2 s.
  const LinkUse use = rig.receiver->link(LaneKind::kTcp);
  CHECK(use.limit == doctest::Approx(2000 / 0.6).epsilon(0.02));
  CHECK(use.share == doctest::Approx(3000 / 1.2 / use.limit).epsilon(0.02));
  rig.world.run_for(5s);
  CHECK(rig.receiver->link(LaneKind::kTcp) == LinkUse{0, use.limit});
}

TEST_CASE("a link whose chunk was broken off is not under way for ever") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  for (int i = 0; i < 4; ++i) {
    sender.send(right(rig, g)[static_cast<size_t>(i)]);
    rig.world.run_for(190ms);
  }
  CHECK(rig.receiver->link(LaneKind::kTcp).share > 0);
  sender.link->close();
  rig.world.run_for(6s);
  CHECK(rig.receiver->link(LaneKind::kTcp).share == 0);
}

template <class T>
auto edit(size_t nth, std::function<void(T&)> change) {
  return [nth, change = std::move(change)](std::vector<handoff::Frame>& frames) {
    size_t i = 0;
    for (auto& f : frames) {
      if (auto* t = std::get_if<T>(&f); t != nullptr && i++ == nth) return change(*t);
    }
    FAIL("no such frame");
  };
}

TEST_CASE("every departure from the right hand-off is rejected") {
  using handoff::ChunkEnd;
  using handoff::Commit;
  using handoff::Slice;
  const std::vector<std::function<void(std::vector<handoff::Frame>&)>> wrongs = {
      edit<Slice>(0, [](Slice& s) { s.chunk = 1; }),
      edit<Slice>(1, [](Slice& s) { s.offset = 0; }),
      edit<Slice>(1, [](Slice& s) { s.offset = 501; }),
      edit<Slice>(1, [](Slice& s) { s.offset = 0xFFFFFF00; }),
      edit<Slice>(2, [](Slice& s) { s.block = 0; }),
      edit<Slice>(2, [](Slice& s) { s.block = 7; }),
      edit<Slice>(2, [](Slice& s) { s.block = 0xFFFFFFFF; }),
      edit<Slice>(3, [](Slice& s) { s.generation = Generation{0}; }),
      edit<Slice>(1, [](Slice& s) { s.bytes = std::span(s.bytes.data(), 499); }),
      edit<Slice>(1, [](Slice& s) { s.bytes = std::span(s.bytes.data(), 501); }),
      edit<ChunkEnd>(0, [](ChunkEnd& c) { c.crc ^= 1; }),
      edit<ChunkEnd>(0, [](ChunkEnd& c) { c.chunk = 1; }),
      edit<ChunkEnd>(0, [](ChunkEnd& c) { c.count = 3; }),
      edit<ChunkEnd>(1, [](ChunkEnd& c) { c.first = 1; }),
      edit<Commit>(0, [](Commit& c) { c.chunks = 3; }),
      edit<Commit>(0, [](Commit& c) { c.tokens = 41; }),
      edit<Commit>(0, [](Commit& c) { c.digest.lo ^= 1; }),
      [](auto& f) { f.erase(f.begin()); },             // a slice is missing
      [](auto& f) { f.erase(f.begin() + 4); },         // a chunk does not end
      [](auto& f) { f.insert(f.begin(), f[0]); },      // a slice comes twice
      [](auto& f) { f.insert(f.begin() + 4, f[4]); },  // a chunk ends twice
      [](auto& f) { std::swap(f[0], f[2]); },
      [](auto& f) { f.erase(f.begin() + 5, f.begin() + 8); },  // the last chunk is missing
      [](auto& f) { f.erase(f.begin(), f.end() - 1); },        // nothing but the commit
      [](auto& f) { f.insert(f.end() - 1, f[0]); },            // more than was announced
      [](auto& f) { f.insert(f.begin(), handoff::Hello{}); },
      [](auto& f) { f.insert(f.begin(), handoff::HelloAck{}); },
      [](auto& f) { f.insert(f.begin(), handoff::Verdict{}); },
      [](auto& f) { f.insert(f.begin(), handoff::SlotPosted{}); },  // no lane was agreed upon
      [](auto& f) { f.insert(f.begin(), handoff::LaneNote{}); },
      [](auto& f) { f.pop_back(); },  // no commit: the sender goes silent
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    CAPTURE(i);
    CHECK(!outcome(wrongs[i]).ok());
  }
}

TEST_CASE("a flipped bit anywhere in the KV is found") {
  for (int nth = 0; nth < 6; ++nth) {
    std::vector<std::byte> other;
    const Status s = outcome(edit<handoff::Slice>(nth, [&](handoff::Slice& slice) {
      other.assign(slice.bytes.begin(), slice.bytes.end());
      other[77] ^= std::byte{4};
      slice.bytes = other;
    }));
    CHECK(s.message.find("CRC") != std::string::npos);
  }
}

TEST_CASE("hello opens the door only to the granted sender") {
  const auto refused = [](const std::function<void(handoff::Hello&)>& change,
                          HandoffKey key = HandoffRig::kKey) {
    HandoffRig rig;
    const ReceiveGrant g = rig.grant(40);
    rig.receiver->expect(g);
    RawSender sender(rig);
    sender.hello(g, change, key);
    CHECK(!sender.acked);
    CHECK(rig.began.empty());
    CHECK(sender.closed);
    RawSender right_one(rig);  // the grant stands
    right_one.hello(g);
    CHECK(right_one.acked);
    REQUIRE(sender.verdict.has_value());
    return sender.verdict->message;
  };
  const auto has = [](const std::string& text, const char* words) {
    CHECK_MESSAGE(text.find(words) != std::string::npos, text);
  };
  has(refused([](auto& h) { h.transfer.lo = 99; }), "no such transfer");
  has(refused([](auto&) {}, {7, 9}), "not signed");
  has(refused([](auto& h) { h.attempt = Attempt{2}; }), "attempt");
  has(refused([](auto& h) { h.decode.lo ^= 1; }), "incarnation");
  has(refused([](auto& h) { h.layout.lo ^= 1; }), "layout");
  for (const char* other : {"bf16 block", "fp8 block", "int8 block"})
    has(refused([&](auto& h) { h.layout = HandoffRig::layout_of(other); }), "layout");
  has(refused([](auto& h) { h.tokens = 41; }), "tokens");
}

TEST_CASE("a second hello is refused and the first goes on") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender first(rig);
  first.hello(g);
  RawSender second(rig);
  second.hello(g);
  CHECK(!second.acked);
  CHECK(second.closed);
  for (const auto& f : right(rig, g)) first.send(f);
  REQUIRE(rig.ended.contains(g.transfer));
  CHECK(rig.ended.at(g.transfer).ok());
}

TEST_CASE("silence before hello, junk, and too many connections are turned away") {
  HandoffRig rig;
  RawSender mute(rig);
  RawSender junk(rig);
  junk.send_bytes(Bytes(50, std::byte{0xEE}));
  CHECK(junk.closed);
  RawSender early(rig);
  early.send(handoff::Commit{});
  CHECK(early.closed);
  CHECK(!mute.closed);
  rig.world.run_for(1200ms);
  CHECK(mute.closed);
  CHECK(rig.receiver->refused() == 3);

  rig.options.connections_max = 3;
  rig.receiver.reset();
  rig.open();
  RawSender a(rig);
  RawSender b(rig);
  RawSender c(rig);
  RawSender over(rig);
  rig.world.run_for(50ms);
  CHECK(over.closed);
  REQUIRE(over.verdict.has_value());
  CHECK(over.verdict->message == "3 KV channels are open, the limit");
  CHECK(!a.closed);
}

TEST_CASE("KV arrives inside chunks, not between them") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  CHECK_FALSE(rig.receiver->arriving());
  const std::vector<bool> after{true, true, true, true, false, true, true, false, false};
  const auto frames = right(rig, g);
  REQUIRE(frames.size() == after.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    CAPTURE(i);
    sender.send(frames[i]);
    CHECK(rig.receiver->arriving() == after[i]);
  }
  CHECK(rig.ended.at(g.transfer).ok());
}

TEST_CASE("what was forgotten is not written") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  const auto frames = right(rig, g);
  sender.send(frames[0]);
  CHECK(rig.receiver->bytes_received() == 500);
  rig.d_strand->post([&] { rig.receiver->forget(g.transfer); });
  sender.send(frames[1]);
  sender.send(frames[2]);
  CHECK(rig.receiver->bytes_received() == 500);
  CHECK(rig.ended.empty());
  CHECK(sender.closed);
}

TEST_CASE("a block freed under a transfer is not written") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  rig.gone[2] = true;
  for (const auto& f : right(rig, g)) sender.send(f);
  REQUIRE(rig.ended.contains(g.transfer));
  CHECK(rig.ended.at(g.transfer).code == Errc::kStale);
}

TEST_CASE("a sender that lives but brings nothing is given up") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  for (int i = 0; i < 70 && rig.ended.empty(); ++i) {
    sender.send(handoff::Alive{});
    rig.world.run_for(490ms);
  }
  REQUIRE(rig.ended.contains(g.transfer));
  CHECK(rig.ended.at(g.transfer).code == Errc::kDeadline);
}

TEST_CASE("its signs of life say how much has come") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(40);
  rig.receiver->expect(g);
  RawSender sender(rig);
  sender.hello(g);
  rig.world.run_for(400ms);
  CHECK(sender.taken == 0u);
  for (size_t i = 0; i < 4; ++i) sender.send(right(rig, g)[i]);
  rig.world.run_for(400ms);
  CHECK(sender.taken == 2000 / 1024u);
}

}  // namespace
}  // namespace headrace::worker

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tests/worker/conformance.h"
#include "worker/crc32c.h"

namespace headrace::worker {
namespace {

constexpr uint32_t kTokens = Device::kBlockTokens;

uint32_t same(uint32_t i) { return i; }

std::vector<uint32_t> numbers(uint32_t count, uint32_t from = 0) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), from);
  return all;
}

// P's blocks `from`, in this order, are D's from grant.blocks on.
bool arrived(Device& p, Device& d, const std::vector<uint32_t>& from, const ReceiveGrant& grant) {
  for (size_t i = 0; i < from.size(); ++i)
    if (p.block(from[i]) != d.block(raw(grant.blocks[i].block))) return false;
  return true;
}

void blocks_of_any_order(const Transport& t) {
  Device p(t, 1, {});
  Device d(t, 2, {});
  for (const uint32_t first : {0u, 5u}) {
    // Neither side's blocks lie in order; 40 * 37 mod 64 and 40 * 23 mod 64 do not repeat.
    const ReceiveGrant g = d.grant(
        40 * kTokens, [](uint32_t i) { return i * 37 % 64; }, first);
    std::vector<uint32_t> from;
    for (uint32_t i = first; i < 40; ++i) from.push_back(i * 23 % 64);
    p.send(g, d.endpoint(), from, {1, 7, 2, 3});
    CHECK(p.sent(g.transfer).ok());
    CHECK(d.received(g.transfer).ok());
    CHECK(arrived(p, d, from, g));
  }
}

void sizes_to_64_mib(const Transport& t) {
  struct Shape {
    uint64_t block_bytes;
    uint32_t blocks;
  };
  for (const Shape s : {Shape{16, 1}, Shape{16, 50}, Shape{(1u << 20) - 16, 3}, Shape{1u << 20, 3},
                        Shape{(1u << 20) + 16, 3}, Shape{9u << 20, 2}, Shape{1u << 20, 64}}) {
    CAPTURE(s.block_bytes);
    Device p(t, 1, {s.block_bytes, s.blocks});
    Device d(t, 2, {s.block_bytes, s.blocks});
    const ReceiveGrant g = d.grant(s.blocks * kTokens, same);
    p.send(g, d.endpoint(), numbers(s.blocks), {5});
    CHECK(p.sent(g.transfer).ok());
    CHECK(d.received(g.transfer).ok());
    CHECK(arrived(p, d, numbers(s.blocks), g));
    CHECK(on_strand(d.strand, [&] { return d.receiver->bytes_received(); }) ==
          s.block_bytes * s.blocks);
  }
}

// The last block is sent whole, whatever is in it.
void partial_tail_blocks(const Transport& t) {
  Device p(t, 1, {});
  Device d(t, 2, {});
  for (const uint32_t tokens : {1u, kTokens - 1, kTokens + 1, 5 * kTokens - 3}) {
    CAPTURE(tokens);
    const uint32_t n = (tokens + kTokens - 1) / kTokens;
    const ReceiveGrant g = d.grant(tokens, same);
    p.send(g, d.endpoint(), numbers(n, 8), {2});
    CHECK(p.sent(g.transfer).ok());
    CHECK(d.received(g.transfer).ok());
    CHECK(arrived(p, d, numbers(n, 8), g));
  }
}

void several_transfers_of_a_pair(const Transport& t) {
  Device p(t, 1, {});
  Device d(t, 2, {});
  const Endpoint at = d.endpoint();
  std::vector<ReceiveGrant> grants;
  for (uint32_t i = 0; i < 8; ++i) {
    grants.push_back(d.grant(8 * kTokens, [i](uint32_t b) { return 8 * i + b; }));
    p.begin(grants.back(), at);
  }
  // In turns, and each with its own blocks.
  for (uint32_t b = 0; b < 8; ++b)
    for (uint32_t i = 0; i < 8; ++i) p.push(grants[i].transfer, {(8 * i + b + 17) % 64}, b == 7);
  for (uint32_t i = 0; i < 8; ++i) {
    CHECK(p.sent(grants[i].transfer).ok());
    CHECK(d.received(grants[i].transfer).ok());
    std::vector<uint32_t> from;
    for (uint32_t b = 0; b < 8; ++b) from.push_back((8 * i + b + 17) % 64);
    CHECK(arrived(p, d, from, grants[i]));
  }
}

void several_streams(const Transport& t) {
  Device d(t, 2, {});
  for (const uint32_t streams : {2u, 3u, kHandoffStreamsMax}) {
    CAPTURE(streams);
    HandoffOptions options;
    options.streams = streams;
    Device p(t, 10 + streams, {}, options);
    for (const uint32_t blocks : {1u, 2u, 7u, 40u}) {
      const ReceiveGrant g = d.grant(blocks * kTokens, [](uint32_t i) { return i * 37 % 64; });
      std::vector<uint32_t> from;
      for (uint32_t i = 0; i < blocks; ++i) from.push_back(i * 23 % 64);
      p.send(g, d.endpoint(), from, {1, 7, 2, 3});
      CHECK(p.sent(g.transfer).ok());
      CHECK(d.received(g.transfer).ok());
      CHECK(arrived(p, d, from, g));
    }
    // One that ends early ends with all of its streams.
    const ReceiveGrant g = d.grant(40 * kTokens, same);
    const uint64_t before = on_strand(d.strand, [&] { return d.receiver->bytes_received(); });
    p.begin(g, d.endpoint());
    p.push(g.transfer, numbers(20), false);
    CHECK(d.reached([&] { return d.receiver->bytes_received() > before; }));
    p.stop(g.transfer);
    CHECK(d.received(g.transfer).code == Errc::kDisconnected);
    const ReceiveGrant h = d.grant(40 * kTokens, same);
    p.begin(h, d.endpoint());
    p.push(h.transfer, numbers(20), false);
    CHECK(d.reached([&] { return !d.began.empty() && d.began.back() == h.transfer; }));
    d.forget(h.transfer);
    CHECK(!p.sent(h.transfer).ok());
  }
}

// From the end of stop() and forget() on blocks belong to others: what these do in them harms
// nobody, and nothing is done to it.
void sender_stops_at_each_state(const Transport& t) {
  for (int state = 0; state < 4; ++state) {
    CAPTURE(state);
    Device p(t, 1, {256u << 10, 32});
    Device d(t, 2, {256u << 10, 32});
    const ReceiveGrant g = d.grant(32 * kTokens, same);
    const Endpoint at = d.endpoint();
    p.begin(g, at);
    if (state > 0) CHECK(d.reached([&] { return d.began.size() == 1; }));
    if (state > 1) p.push(g.transfer, numbers(state == 2 ? 20 : 32), false);
    if (state > 2) CHECK(d.reached([&] { return d.receiver->bytes_received() > 0; }));
    p.stop(g.transfer);
    p.fill(77);
    if (state > 0) CHECK(!d.received(g.transfer).ok());
    const ReceiveGrant next = d.grant(32 * kTokens, same);
    p.send(next, at, numbers(32), {8});
    CHECK(p.sent(next.transfer).ok());
    CHECK(arrived(p, d, numbers(32), next));
  }
}

void receiver_forgets_at_each_state(const Transport& t) {
  for (int state = 0; state < 4; ++state) {
    CAPTURE(state);
    Device p(t, 1, {256u << 10, 32});
    Device d(t, 2, {256u << 10, 32});
    const ReceiveGrant g = d.grant(32 * kTokens, same);
    if (state > 0) p.begin(g, d.endpoint());
    if (state > 1) p.push(g.transfer, numbers(32), true);
    if (state == 2) CHECK(d.reached([&] { return d.receiver->bytes_received() > 0; }));
    if (state == 3) CHECK(d.received(g.transfer).ok());
    d.forget(g.transfer);
    const bool over = on_strand(d.strand, [&] { return d.ended.contains(g.transfer); });
    d.fill(99);
    if (state == 0) p.begin(g, d.endpoint());
    if (state == 1) p.push(g.transfer, numbers(32), true);
    CHECK(p.sent(g.transfer).ok() == over);
    Device like(t, 3, {256u << 10, 32});
    like.fill(99);
    for (const uint32_t b : {0u, 1u, 16u, 31u}) CHECK(d.block(b) == like.block(b));
  }
}

void a_dead_peer(const Transport& t) {
  Device p(t, 1, {});
  auto d = std::make_unique<Device>(t, 2, DeviceShape{});
  const ReceiveGrant g = d->grant(8 * kTokens, same);
  const Endpoint at = d->endpoint();
  p.begin(g, at);
  p.push(g.transfer, {1, 2}, false);
  CHECK(d->reached([&] { return d->receiver->bytes_received() > 0; }));
  d = nullptr;
  CHECK(p.sent(g.transfer).code == Errc::kDisconnected);

  Device e(t, 3, {});
  const ReceiveGrant h = e.grant(8 * kTokens, same);
  auto q = std::make_unique<Device>(t, 4, DeviceShape{});
  q->begin(h, e.endpoint());
  q->push(h.transfer, {1, 2}, false);
  CHECK(e.reached([&] { return e.receiver->bytes_received() > 0; }));
  q = nullptr;
  CHECK(e.received(h.transfer).code == Errc::kDisconnected);
  // Nobody listens there any more.
  p.begin(h, at);
  CHECK(p.sent(h.transfer).code == Errc::kUnavailable);
}

// One that says nothing any more is given up by the other; what it says later changes nothing.
void a_frozen_peer(const Transport& t) {
  for (const bool receiver : {true, false}) {
    CAPTURE(receiver);
    Device p(t, 1, {});
    Device d(t, 2, {});
    const ReceiveGrant g = d.grant(8 * kTokens, same);
    p.begin(g, d.endpoint());
    p.push(g.transfer, {1, 2}, false);
    CHECK(d.reached([&] { return d.receiver->bytes_received() > 0; }));
    (receiver ? d : p).freeze(true);
    const Status seen = receiver ? p.sent(g.transfer) : d.received(g.transfer);
    CHECK(seen.code == Errc::kDisconnected);
    CHECK(seen.message.find("silent") != std::string::npos);
    (receiver ? d : p).freeze(false);
    CHECK(!(receiver ? d.received(g.transfer) : p.sent(g.transfer)).ok());
  }
}

void a_restarted_peer(const Transport& t) {
  Device p(t, 1, {});
  Device d(t, 2, {});
  const Endpoint at = d.endpoint();
  const ReceiveGrant g = d.grant(8 * kTokens, same);
  d.restart();
  p.send(g, at, numbers(8), {8});
  CHECK(p.sent(g.transfer).code == Errc::kStale);
  // Its new life grants the same transfer's name by chance: the old one's sender is not admitted.
  const ReceiveGrant next = d.grant(8 * kTokens, same);
  p.begin(next, at, [&](SendJob& job) { job.grant.decode = g.decode; });
  CHECK(p.sent(next.transfer).code == Errc::kStale);
  p.send(next, at, numbers(8), {8});
  CHECK(p.sent(next.transfer).ok());
}

void mismatched_layouts(const Transport& t) {
  Device p(t, 1, {});
  Device d(t, 2, {});
  const std::vector<std::pair<const char*, std::function<void(SendJob&)>>> wrongs = {
      {"layout", [](SendJob& j) { j.layout.lo ^= 1; }},
      {"tokens", [](SendJob& j) { j.tokens -= 1; }},
      {"first block", [](SendJob& j) { j.grant.first_block = 1; }},
      {"attempt", [](SendJob& j) { j.attempt = Attempt{2}; }},
      {"signed", [](SendJob& j) { j.grant.key.lo ^= 1; }},
  };
  for (const auto& [word, change] : wrongs) {
    const ReceiveGrant g = d.grant(8 * kTokens, same);
    p.begin(g, d.endpoint(), change);
    const Status refused = p.sent(g.transfer);
    CHECK_MESSAGE(refused.message.find(word) != std::string::npos, refused.message);
    p.send(g, d.endpoint(), numbers(8), {8});  // the grant stands
    CHECK(p.sent(g.transfer).ok());
  }
  // Blocks of another size: nothing is written beyond those that were granted.
  Device small(t, 3, {2048, 64});
  const ReceiveGrant g = d.grant(8 * kTokens, same);
  const auto before = d.block(8);
  small.send(g, d.endpoint(), numbers(8), {8});
  CHECK(!small.sent(g.transfer).ok());
  CHECK(!d.received(g.transfer).ok());
  CHECK(d.block(8) == before);
}

// A sender that says exactly what the case wants.
struct Liar {
  Liar(const Transport& t, Device& d, const ReceiveGrant& g) : strand(t.strand()) {
    auto there = std::make_shared<std::promise<void>>();
    auto up = there->get_future();
    t.network.dial(d.endpoint(), 5s, {}, strand, [this, there](auto result) {
      link = std::move(*result);
      link->start([](const Bytes&) {}, [this](const Status&) { closed = true; });
      there->set_value();
    });
    if (up.wait_for(kConformanceHang) != std::future_status::ready) std::abort();
    handoff::Hello h;
    h.transfer = g.transfer;
    h.attempt = g.attempt;
    h.prefill = {1, 1};
    h.decode = g.decode;
    h.layout = Device::kLayout;
    h.tokens = g.tokens;
    h.mac = hello_mac(h, g.key);
    send(h);
  }
  ~Liar() {
    on_strand(strand, [&] { link = nullptr; });
    on_strand(strand, [] {});
  }
  void send(const handoff::Frame& frame) {
    on_strand(strand, [&] { link->send(encode_handoff(frame)); });
  }

  const std::shared_ptr<Strand> strand;
  std::unique_ptr<Link> link;
  bool closed = false;
};

// Two blocks of 1,000 bytes for the blocks 3 and 1 of D, and how they should come.
void corrupt_data(const Transport& t) {
  using handoff::ChunkEnd;
  using handoff::Commit;
  using handoff::Slice;
  struct Words {
    std::vector<std::byte> bytes;
    std::vector<Slice> slices;
    ChunkEnd chunk;
    Commit commit;
  };
  const std::vector<std::pair<const char*, std::function<void(Words&)>>> lies = {
      {"", [](Words&) {}},
      {"CRC", [](Words& w) { w.bytes[1500] ^= std::byte{1}; }},
      {"CRC", [](Words& w) { w.chunk.crc ^= 0x100; }},
      {"digest", [](Words& w) { w.commit.digest.hi ^= 1; }},
      {"generation", [](Words& w) { w.slices[2].generation = Generation{9}; }},
      {"offset", [](Words& w) { w.slices[1].offset = 501; }},
      {"offset", [](Words& w) { w.slices[1].offset = 0xFFFFFF00; }},
      {"block", [](Words& w) { w.slices[2].block = 2; }},
      {"blocks", [](Words& w) { w.slices.push_back(w.slices[0]), w.slices[4].block = 2; }},
      {"passes the end", [](Words& w) { w.slices[0].bytes = std::span(w.bytes).first(1009); }},
      {"inside a block", [](Words& w) { w.slices.pop_back(); }},
      {"chunk", [](Words& w) { w.slices[3].chunk = 1; }},
      {"commit of chunks", [](Words& w) { w.commit.chunks = 2; }},
      {"offset", [](Words& w) { std::swap(w.slices[0], w.slices[1]); }},
      {"block", [](Words& w) { w.slices.insert(w.slices.begin() + 2, w.slices[0]); }},
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    CAPTURE(i);
    Device d(t, 2, {1008, 8});
    const ReceiveGrant g = d.grant(2 * kTokens, [](uint32_t b) { return 3 - 2 * b; });
    std::vector<std::vector<std::byte>> before;
    for (uint32_t b = 0; b < 8; ++b) before.push_back(d.block(b));
    Words w;
    for (size_t b = 0; b < 2016; ++b) w.bytes.push_back(static_cast<std::byte>(b * 31 + b / 256));
    w.chunk = {0, 0, 2, crc32c(w.bytes)};
    for (uint32_t s = 0; s < 4; ++s)
      w.slices.push_back(
          {0, s / 2, Generation{s / 2 + 1}, s % 2 * 504, std::span(w.bytes).subspan(s * 504, 504)});
    ChunkDigest digest;
    digest.add(0, w.chunk.crc);
    w.commit = {1, g.tokens, digest.value()};
    lies[i].second(w);
    Liar liar(t, d, g);
    for (const Slice& s : w.slices) liar.send(s);
    liar.send(w.chunk);
    liar.send(w.commit);
    const Status said = d.received(g.transfer);
    CHECK(said.ok() == (i == 0));
    CHECK_MESSAGE(said.message.find(lies[i].first) != std::string::npos, said.message);
    d.forget(g.transfer);
    for (const uint32_t b : {0u, 2u, 4u, 5u, 6u, 7u}) CHECK(d.block(b) == before[b]);
  }
}

// What comes when all is over, or to a name that was granted anew.
void late_data(const Transport& t) {
  Device d(t, 2, {1008, 8});
  const ReceiveGrant g = d.grant(kTokens, same);
  Liar late(t, d, g);
  CHECK(d.reached([&] { return d.began.size() == 1; }));
  d.forget(g.transfer);
  d.fill(5);
  const auto before = d.block(0);
  const std::vector<std::byte> bytes(1008, std::byte{1});
  late.send(handoff::Slice{0, 0, Generation{1}, 0, bytes});
  Device p(t, 1, {1008, 8});
  const ReceiveGrant again = d.grant(kTokens, [](uint32_t) { return 0u; });
  late.send(handoff::Slice{0, 0, Generation{1}, 0, bytes});
  CHECK(d.block(0) == before);
  p.send(again, d.endpoint(), {4}, {1});
  CHECK(p.sent(again.transfer).ok());
  CHECK(p.block(4) == d.block(0));
}

// Each of four sends to all others at once, the others in another order each: nobody waits for
// somebody who waits for it.
void many_pairs_in_conflicting_order(const Transport& t) {
  constexpr uint32_t kDevices = 4;
  std::vector<std::unique_ptr<Device>> all;
  for (uint32_t i = 0; i < kDevices; ++i)
    all.push_back(std::make_unique<Device>(t, i + 1, DeviceShape{64u << 10, 64}));
  std::map<std::pair<uint32_t, uint32_t>, ReceiveGrant> grants;  // by sender, receiver
  for (uint32_t round = 0; round < 3; ++round) {
    grants.clear();
    for (uint32_t to = 0; to < kDevices; ++to)
      for (uint32_t from = 0; from < kDevices; ++from)
        if (from != to)
          grants[{from, to}] =
              all[to]->grant(10 * kTokens, [from](uint32_t i) { return 16 * from + i; });
    for (uint32_t i = 0; i < kDevices; ++i) {
      for (uint32_t n = 1; n < kDevices; ++n) {
        const uint32_t to = (i + (i % 2 == 0 ? n : kDevices - n)) % kDevices;
        all[i]->begin(grants[{i, to}], all[to]->endpoint());
      }
    }
    for (uint32_t block = 0; block < 10; block += 5)
      for (const auto& [pair, g] : grants)
        all[pair.first]->push(g.transfer, numbers(5, 16 * pair.first + block), block == 5);
    for (const auto& [pair, g] : grants) {
      CHECK(all[pair.first]->sent(g.transfer).ok());
      CHECK(all[pair.second]->received(g.transfer).ok());
    }
  }
  for (const auto& [pair, g] : grants)
    CHECK(arrived(*all[pair.first], *all[pair.second], numbers(10, 16 * pair.first), g));
}

}  // namespace

void run_conformance(const Transport& t) {
  SUBCASE("blocks of any order") { blocks_of_any_order(t); }
  SUBCASE("sizes to 64 MiB") { sizes_to_64_mib(t); }
  SUBCASE("partial tail blocks") { partial_tail_blocks(t); }
  SUBCASE("several transfers of a pair") { several_transfers_of_a_pair(t); }
  SUBCASE("several streams") { several_streams(t); }
  SUBCASE("a sender stops at each state") { sender_stops_at_each_state(t); }
  SUBCASE("a receiver forgets at each state") { receiver_forgets_at_each_state(t); }
  SUBCASE("a dead peer") { a_dead_peer(t); }
  SUBCASE("a frozen peer") { a_frozen_peer(t); }
  SUBCASE("a restarted peer") { a_restarted_peer(t); }
  SUBCASE("mismatched layouts") { mismatched_layouts(t); }
  SUBCASE("corrupt data") { corrupt_data(t); }
  SUBCASE("late data") { late_data(t); }
  SUBCASE("many pairs in conflicting order") { many_pairs_in_conflicting_order(t); }
}

}  // namespace headrace::worker

// A prefill worker that says anything: raw frames, right frames bent in one field, several channels
// at once, time passing, grants withdrawn. Nothing outside of the granted blocks is ever written,
// and what was verified is what a truthful sender sent.
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/local_network.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/manual_strand.h"
#include "worker/crc32c.h"
#include "worker/handoff_receiver.h"

namespace headrace::worker {
namespace {

using namespace handoff;

constexpr uint32_t kBlockTokens = 16;
constexpr uint64_t kBlockBytes = 64;
constexpr uint32_t kBlocks = 8;
constexpr uint32_t kTokens = 40;            // three blocks
constexpr uint32_t kGranted[] = {6, 1, 4};  // their places
constexpr Digest kLayout{5, 6};
constexpr HandoffKey kKey{7, 8};
constexpr Incarnation kDecode{9, 10};
constexpr TransferId kTransfer{1, 1};
constexpr std::byte kUntouched{0xEE};

std::byte truth(uint64_t at) { return static_cast<std::byte>(at * 37 + 11); }

// One channel as its sender sees it.
struct Sender {
  std::unique_ptr<Link> link;
  uint32_t chunk = 0, first = 0, block = 0, offset = 0, crc = 0;
  ChunkDigest digest;
};

struct Scene {
  std::shared_ptr<fuzz::ManualStrand> strand = std::make_shared<fuzz::ManualStrand>();
  LocalNetwork network;
  std::vector<std::byte> memory = std::vector<std::byte>(kBlocks * kBlockBytes, kUntouched);
  std::unique_ptr<HandoffReceiver> receiver;
  std::vector<std::unique_ptr<Sender>> senders;
  bool withdrawn = false;
  bool lied = false;  // a raw frame or a false truth was sent
  std::optional<Status> ended;

  Scene() {
    HandoffReceiver::Host host;
    host.ours = [this](BlockRef ref) {
      CHECK(!withdrawn);
      CHECK(raw(ref.block) < kBlocks && raw(ref.generation) == raw(ref.block) + 1);
      return true;
    };
    host.memory.host = [this](BlockId id) { return memory.data() + raw(id) * kBlockBytes; };
    host.began = [](TransferId t) { CHECK(t == kTransfer); };
    host.ended = [this](TransferId t, Status s) {
      CHECK(t == kTransfer && !ended && !withdrawn);
      ended = std::move(s);
    };
    receiver = *HandoffReceiver::listen(strand, network, {"d", 0}, {.connections_max = 3},
                                        {kLayout, kBlockTokens, kBlockBytes}, std::move(host));
    ReceiveGrant grant{kTransfer, Attempt{1}, kDecode, kKey, kTokens, {}};
    for (const uint32_t b : kGranted) grant.blocks.push_back({BlockId{b}, Generation{b + 1}});
    receiver->expect(std::move(grant));
    dial();
  }
  ~Scene() {
    receiver.reset();
    senders.clear();
    strand->drain();
  }

  void dial() {
    auto& s = *senders.emplace_back(std::make_unique<Sender>());
    network.dial(receiver->endpoint(), 1s, {}, strand, [&s](auto link) {
      CHECK(link.has_value());
      s.link = std::move(*link);
      s.link->start([](const Bytes&) {}, [](const Status&) {});
    });
    strand->drain();
  }
  void send(Sender& s, Bytes frame) {
    s.link->send(std::move(frame));
    strand->drain();
    check();
  }
  void check() const {
    for (uint32_t b = 0; b < kBlocks; ++b) {
      if (std::find(std::begin(kGranted), std::end(kGranted), b) != std::end(kGranted)) continue;
      for (uint64_t i = 0; i < kBlockBytes; ++i) CHECK(memory[b * kBlockBytes + i] == kUntouched);
    }
    if (!ended || !ended->ok() || lied) return;
    for (uint64_t i = 0; i < std::size(kGranted) * kBlockBytes; ++i) {
      CHECK(memory[kGranted[i / kBlockBytes] * kBlockBytes + i % kBlockBytes] == truth(i));
    }
  }
};

// Bends one byte of a frame that was right.
Bytes bend(Bytes frame, fuzz::Input& input) {
  const uint8_t where = input.byte();
  const uint8_t how = input.byte();
  frame[where % frame.size()] ^= static_cast<std::byte>(how);
  return frame;
}

Bytes hello(fuzz::Input& input, bool bent) {
  Hello h;
  h.transfer = kTransfer;
  h.attempt = Attempt{1};
  h.prefill = {11, 12};
  h.decode = kDecode;
  h.layout = kLayout;
  h.tokens = kTokens;
  if (bent) {
    switch (input.byte() % 6) {
      case 0:
        h.transfer.lo += input.byte();
        break;
      case 1:
        h.attempt = Attempt{input.byte()};
        break;
      case 2:
        h.decode.hi += input.byte();
        break;
      case 3:
        h.layout.lo += input.byte();
        break;
      case 4:
        h.stream = input.byte() % 10;
        h.streams = input.byte() % 10;
        break;
      default:
        h.tokens = input.word();
    }
  }
  h.mac = hello_mac(h, kKey);
  return encode_handoff(h);
}

Bytes slice(Sender& s, fuzz::Input& input) {
  const uint64_t room = kBlockBytes - s.offset;
  const uint64_t size = std::min<uint64_t>(room, 1 + input.byte());
  std::vector<std::byte> bytes(size);
  for (uint64_t i = 0; i < size; ++i) bytes[i] = truth(s.block * kBlockBytes + s.offset + i);
  const uint32_t place = s.block < std::size(kGranted) ? kGranted[s.block] : s.block;
  Bytes frame = encode_handoff(Slice{s.chunk, s.block, Generation{place + 1}, s.offset, bytes});
  s.crc = crc32c(bytes, s.crc);
  s.offset += static_cast<uint32_t>(size);
  if (s.offset == kBlockBytes) {
    s.offset = 0;
    ++s.block;
  }
  return frame;
}

Bytes chunk_end(Sender& s) {
  Bytes frame = encode_handoff(ChunkEnd{s.chunk, s.first, s.block - s.first, s.crc});
  s.digest.add(s.chunk++, s.crc);
  s.first = s.block;
  s.crc = 0;
  return frame;
}

void step(Scene& scene, fuzz::Input& input) {
  const uint8_t op = input.byte();
  Sender& s = *scene.senders[(op >> 4) % scene.senders.size()];
  const bool bent = (op & 8) != 0;
  switch (op & 7) {
    case 0: {  // raw
      scene.lied = true;
      const auto bytes = std::as_bytes(input.take(input.byte()));
      return scene.send(s, Bytes(bytes.begin(), bytes.end()));
    }
    case 1:
      return scene.send(s, hello(input, bent));
    case 2: {
      Bytes frame = slice(s, input);
      return scene.send(s, bent ? bend(std::move(frame), input) : std::move(frame));
    }
    case 3: {
      Bytes frame = chunk_end(s);
      return scene.send(s, bent ? bend(std::move(frame), input) : std::move(frame));
    }
    case 4: {
      Bytes frame = encode_handoff(Commit{s.chunk, kTokens, s.digest.value()});
      return scene.send(s, bent ? bend(std::move(frame), input) : std::move(frame));
    }
    case 5:
      scene.strand->pass(std::chrono::milliseconds(8 * input.byte()));
      scene.receiver->sweep();
      break;
    case 6:
      if (scene.senders.size() < 6) scene.dial();
      break;
    default:
      if (!bent) return scene.send(s, encode_handoff(Alive{}));
      if (!scene.ended) scene.withdrawn = true;
      scene.receiver->forget(kTransfer);
  }
  scene.strand->drain();
  scene.check();
}

}  // namespace
}  // namespace headrace::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headrace::fuzz::Input input(data, size);
  (void)headrace::worker::decode_handoff(std::as_bytes(std::span(data, size)));
  headrace::worker::Scene scene;
  for (int steps = 0; steps < 200 && !input.empty(); ++steps) {
    headrace::worker::step(scene, input);
  }
  return 0;
}

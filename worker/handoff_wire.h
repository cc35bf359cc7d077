#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "protocol/ids.h"
#include "protocol/link.h"
#include "protocol/model_card.h"
#include "protocol/result.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

// Frames of the KV channel, prefill worker (P) -> decode worker (D) unless said. Little-endian,
// fixed fields after one byte that names the frame. One channel carries one hand-off, in order:
//
//   Hello, <- HelloAck, { Slice... ChunkEnd }..., Commit, <- Verdict; Alive both ways at any time.
//
// A chunk is a run of whole blocks (all layers of each) that continues where the last one ended;
// a slice lies inside one block. So each byte of the hand-off has exactly one place in the stream.
//
// Where both ends say kNccl (payload_lane.h), the bytes go by a lane instead of slices:
//
//   Hello, <- HelloAck, { SlotPosted... ChunkEnd }..., Commit, <- Verdict; LaneNote both ways.
//
// D posts one of its slots for each that P has told of, so none waits for what is still computed;
// and P vouches in Alive for those that have not moved, so none waits for what was never posted.
//
// A hand-off may have several channels, streams, each of them as above: stream s of n carries every
// n-th block, from first + s on, and counts its own chunks. It is over when all have their verdict.

constexpr uint32_t kHandoffMagic = 0x4B565248;  // "HRVK"
constexpr uint32_t kHandoffVersion = 5;
constexpr uint32_t kHandoffStreamsMax = 8;
constexpr size_t kSliceBytesMax = size_t{1} << 20;
// The longest frame: a slice and its header. Set as the links' limit.
constexpr size_t kHandoffFrameMax = kSliceBytesMax + 64;
constexpr size_t kHelloBytesMax = 256;  // the first frame of a channel
// What D takes; and what it says is little, and waits for nobody who does not read.
constexpr LinkLimits kReceiverLink{.frame_bytes_max = kHandoffFrameMax,
                                   .first_frame_bytes_max = kHelloBytesMax,
                                   .unsent_bytes_max = 64u << 10};
constexpr size_t kVerdictMessageMax = 1024;

using Mac = std::array<std::byte, 32>;

namespace handoff {

// The first frame of a channel; everything that D checks before it reads on.
struct Hello {
  TransferId transfer;
  Attempt attempt{};
  Incarnation prefill;
  Incarnation decode;   // as the grant named it
  Digest layout;        // layout_digest of P's model card
  uint32_t tokens = 0;  // whose KV D will have
  uint32_t first = 0;   // block that will come first: D has those before it
  uint32_t stream = 0;  // which of the hand-off's channels this is
  uint32_t streams = 1;
  LaneTerms lane;  // what P offers; with several streams none
  Mac mac{};       // HMAC-SHA256 of all the above under the grant's one-time key
  bool operator==(const Hello&) const = default;
};

struct HelloAck {  // D -> P: go on
  LaneTerms lane;  // kNccl: and make the lane
  Mac mac{};       // HMAC-SHA256 of hello's MAC and the above under the same key
  bool operator==(const HelloAck&) const = default;
};

// `bytes` of block `block` of the sequence, from `offset` on. Decoded, it points into the frame.
struct Slice {
  uint32_t chunk = 0;       // index of the chunk that this belongs to
  uint32_t block = 0;       // index in the sequence
  Generation generation{};  // of D's block, as granted
  uint32_t offset = 0;      // inside the block
  std::span<const std::byte> bytes;
};

// Ends a chunk of `count` blocks of the stream, from `first` on.
struct ChunkEnd {
  uint32_t chunk = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t crc = 0;  // CRC-32C of its bytes in order
  bool operator==(const ChunkEnd&) const = default;
};

// All is sent.
struct Commit {
  uint32_t chunks = 0;
  uint32_t tokens = 0;
  Digest digest;  // of ChunkDigest over the chunks
  bool operator==(const Commit&) const = default;
};

// D -> P: ok = every check passed, the sequence is D's; else what was wrong. Ends the channel.
struct Verdict {
  Status status;
  bool operator==(const Verdict&) const = default;
};

// The peer lives, though it has nothing to say (it computes).
struct Alive {
  // P: slots of the lane, posted and not moved. D: KiB of KV that have come, so that P knows
  // whether what it has sent still travels.
  uint32_t count = 0;
  bool operator==(const Alive&) const = default;
};

// One more slot of the lane is full and posted.
struct SlotPosted {
  bool operator==(const SlotPosted&) const = default;
};

// Both ways: of the lane's own, with their CRC-32C, since NCCL itself checks nothing. Decoded, it
// points into the frame.
struct LaneNote {
  std::span<const std::byte> bytes;
};

using Frame =
    std::variant<Hello, HelloAck, Slice, ChunkEnd, Commit, Verdict, Alive, SlotPosted, LaneNote>;

}  // namespace handoff

// What a slice's frame has in front of its bytes.
constexpr size_t kSliceHead = 1 + 4 * sizeof(uint32_t);

Bytes encode_handoff(const handoff::Frame& frame);
Bytes encode_slice_head(const handoff::Slice& slice);
// The head of a slice's frame, without bytes; nothing if it is another's.
std::optional<handoff::Slice> decode_slice_head(std::span<const std::byte> head);
// Any bytes: kInvalid, never a crash. A Slice or LaneNote in the result lives as long as `frame`.
Result<handoff::Frame> decode_handoff(std::span<const std::byte> frame);

Mac hello_mac(const handoff::Hello& hello, HandoffKey key);
// In constant time.
bool hello_mac_ok(const handoff::Hello& hello, HandoffKey key);
// Of the answer to this hello.
Mac ack_mac(const handoff::Hello& hello, const handoff::HelloAck& ack, HandoffKey key);
bool ack_mac_ok(const handoff::Hello& hello, const handoff::HelloAck& ack, HandoffKey key);

// What two workers must have in common for one's KV bytes to be the other's: weights, arithmetic,
// geometry and order of bytes.
Digest layout_digest(const ModelCard& card);

// XXH3-128 over (index, CRC) of the chunks, in order.
class ChunkDigest {
 public:
  void add(uint32_t chunk, uint32_t crc);
  Digest value() const;

 private:
  Bytes words_;  // 8 bytes a chunk
};

}  // namespace headrace::worker

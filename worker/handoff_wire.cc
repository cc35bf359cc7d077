#include "worker/handoff_wire.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "worker/crc32c.h"
#include "worker/fields.h"

namespace headrace::worker {
namespace {

enum class Kind : uint8_t {
  kHello = 1,
  kHelloAck,
  kSlice,
  kChunkEnd,
  kCommit,
  kVerdict,
  kAlive,
  kSlotPosted,
  kLaneNote,
};

// A frame of this kind, to be filled.
FieldWriter begun(Kind kind) {
  FieldWriter w;
  w.put(raw(kind));
  return w;
}

void put(FieldWriter& w, const LaneTerms& t) {
  w.put(raw(t.kind));
  w.put(t.version);
  w.put(t.slot_bytes);
  w.put(t.host);
  w.put(t.device);
}

// Nothing: no such kind.
std::optional<LaneTerms> terms(FieldReader& r) {
  LaneTerms t;
  const auto kind = r.get<uint8_t>();
  t.kind = LaneKind{kind};
  t.version = r.get<uint32_t>();
  t.slot_bytes = r.get<uint32_t>();
  t.host = r.get<uint64_t>();
  t.device = r.get<uint64_t>();
  if (kind > raw(LaneKind::kNccl)) return std::nullopt;
  return t;
}

Bytes hello_body(const handoff::Hello& h) {
  FieldWriter w = begun(Kind::kHello);
  w.put(kHandoffMagic);
  w.put(kHandoffVersion);
  w.put(h.transfer);
  w.put(h.attempt);
  w.put(h.prefill);
  w.put(h.decode);
  w.put(h.layout);
  w.put(h.tokens);
  w.put(h.first);
  w.put(h.stream);
  w.put(h.streams);
  put(w, h.lane);
  return w.take();
}

Bytes ack_body(const handoff::HelloAck& a) {
  FieldWriter w = begun(Kind::kHelloAck);
  put(w, a.lane);
  return w.take();
}

Bytes with(Bytes body, const Mac& mac) {
  body.insert(body.end(), mac.begin(), mac.end());
  return body;
}

Mac hmac(std::span<const std::byte> body, HandoffKey key) {
  Mac mac{};
  unsigned length = 0;
  const auto* done =
      HMAC(EVP_sha256(), &key, sizeof(key), reinterpret_cast<const unsigned char*>(body.data()),
           body.size(), reinterpret_cast<unsigned char*>(mac.data()), &length);
  CHECK(done != nullptr && length == mac.size());
  return mac;
}

bool same(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Bytes write(const handoff::Hello& h) { return with(hello_body(h), h.mac); }
Bytes write(const handoff::HelloAck& a) { return with(ack_body(a), a.mac); }
Bytes write(const handoff::Alive& a) {
  FieldWriter w = begun(Kind::kAlive);
  w.put(a.count);
  return w.take();
}
Bytes write(const handoff::SlotPosted&) { return begun(Kind::kSlotPosted).take(); }

Bytes write(const handoff::LaneNote& n) {
  CHECK(n.bytes.size() <= kLaneNoteMax);
  FieldWriter w = begun(Kind::kLaneNote);
  w.put(crc32c(n.bytes));
  w.put(n.bytes);
  return w.take();
}

Bytes write_head(const handoff::Slice& s, size_t room) {
  CHECK(s.bytes.size() <= kSliceBytesMax);
  FieldWriter w = begun(Kind::kSlice);
  w.reserve(kSliceHead + room);
  w.put(s.chunk);
  w.put(s.block);
  w.put(s.generation);
  w.put(s.offset);
  return w.take();
}

Bytes write(const handoff::Slice& s) {
  Bytes bytes = write_head(s, s.bytes.size());
  bytes.insert(bytes.end(), s.bytes.begin(), s.bytes.end());
  return bytes;
}

Bytes write(const handoff::ChunkEnd& c) {
  FieldWriter w = begun(Kind::kChunkEnd);
  w.put(c.chunk);
  w.put(c.first);
  w.put(c.count);
  w.put(c.crc);
  return w.take();
}

Bytes write(const handoff::Commit& c) {
  FieldWriter w = begun(Kind::kCommit);
  w.put(c.chunks);
  w.put(c.tokens);
  w.put(c.digest);
  return w.take();
}

Bytes write(const handoff::Verdict& v) {
  FieldWriter w = begun(Kind::kVerdict);
  w.put(raw(v.status.code));
  const size_t n = std::min(v.status.message.size(), kVerdictMessageMax);
  w.put(std::as_bytes(std::span(v.status.message.data(), n)));
  return w.take();
}

Result<handoff::Frame> malformed(const char* what) { return error(Errc::kInvalid, what); }

Result<handoff::Frame> read_hello(FieldReader& r) {
  if (r.get<uint32_t>() != kHandoffMagic) return malformed("the magic number of hello is wrong");
  if (const auto version = r.get<uint32_t>(); version != kHandoffVersion) {
    return error(Errc::kInvalid, "version " + std::to_string(version) + ", this worker speaks " +
                                     std::to_string(kHandoffVersion));
  }
  handoff::Hello h;
  h.transfer = r.get<TransferId>();
  h.attempt = r.get<Attempt>();
  h.prefill = r.get<Incarnation>();
  h.decode = r.get<Incarnation>();
  h.layout = r.get<Digest>();
  h.tokens = r.get<uint32_t>();
  h.first = r.get<uint32_t>();
  h.stream = r.get<uint32_t>();
  h.streams = r.get<uint32_t>();
  const auto lane = terms(r);
  h.mac = r.get<Mac>();
  if (!r.finished()) return malformed("hello has a wrong length");
  if (!lane) return malformed("hello offers a lane of unknown kind");
  h.lane = *lane;
  if (h.streams == 0 || h.streams > kHandoffStreamsMax || h.stream >= h.streams)
    return malformed("hello is of a stream that cannot be");
  return handoff::Frame(h);
}

Result<handoff::Frame> read_ack(FieldReader& r) {
  handoff::HelloAck a;
  const auto lane = terms(r);
  a.mac = r.get<Mac>();
  if (!r.finished()) return malformed("hello-ack has a wrong length");
  if (!lane) return malformed("hello-ack takes a lane of unknown kind");
  a.lane = *lane;
  return handoff::Frame(a);
}

Result<handoff::Frame> read_note(FieldReader& r) {
  const auto crc = r.get<uint32_t>();
  const handoff::LaneNote note{r.rest()};
  if (!r.finished() || note.bytes.size() > kLaneNoteMax)
    return malformed("a lane's note has a wrong length");
  if (crc32c(note.bytes) != crc) return malformed("CRC of a lane's note is wrong");
  return handoff::Frame(note);
}

handoff::Slice read_head(FieldReader& r) {
  handoff::Slice s;
  s.chunk = r.get<uint32_t>();
  s.block = r.get<uint32_t>();
  s.generation = r.get<Generation>();
  s.offset = r.get<uint32_t>();
  return s;
}

Result<handoff::Frame> read_slice(FieldReader& r) {
  handoff::Slice s = read_head(r);
  s.bytes = r.rest();
  if (!r.finished() || s.bytes.empty()) return malformed("a slice has a wrong length");
  if (s.bytes.size() > kSliceBytesMax) return malformed("a slice is longer than 1 MiB");
  return handoff::Frame(s);
}

Result<handoff::Frame> read_verdict(FieldReader& r) {
  handoff::Verdict v;
  const auto code = r.get<uint16_t>();
  const auto text = r.rest();
  if (!r.finished() || text.size() > kVerdictMessageMax) {
    return malformed("a verdict has a wrong length");
  }
  v.status.code = code > raw(Errc::kUnknown) ? Errc::kUnknown : Errc{code};
  v.status.message.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return handoff::Frame(v);
}

template <class T>
Result<handoff::Frame> whole(const FieldReader& r, T frame, const char* what) {
  if (!r.finished()) return malformed(what);
  return handoff::Frame(std::move(frame));
}

}  // namespace

Bytes encode_handoff(const handoff::Frame& frame) {
  return std::visit([](const auto& f) { return write(f); }, frame);
}

Bytes encode_slice_head(const handoff::Slice& slice) { return write_head(slice, 0); }

std::optional<handoff::Slice> decode_slice_head(std::span<const std::byte> head) {
  FieldReader r(head);
  if (head.size() != kSliceHead || Kind{r.get<uint8_t>()} != Kind::kSlice) return std::nullopt;
  return read_head(r);
}

Result<handoff::Frame> decode_handoff(std::span<const std::byte> frame) {
  FieldReader r(frame);
  switch (Kind{r.get<uint8_t>()}) {
    case Kind::kHello:
      return read_hello(r);
    case Kind::kHelloAck:
      return read_ack(r);
    case Kind::kSlice:
      return read_slice(r);
    case Kind::kChunkEnd: {
      handoff::ChunkEnd c;
      c.chunk = r.get<uint32_t>();
      c.first = r.get<uint32_t>();
      c.count = r.get<uint32_t>();
      c.crc = r.get<uint32_t>();
      return whole(r, c, "chunk-end has a wrong length");
    }
    case Kind::kCommit: {
      handoff::Commit c;
      c.chunks = r.get<uint32_t>();
      c.tokens = r.get<uint32_t>();
      c.digest = r.get<Digest>();
      return whole(r, c, "commit has a wrong length");
    }
    case Kind::kVerdict:
      return read_verdict(r);
    case Kind::kAlive:
      return whole(r, handoff::Alive{r.get<uint32_t>()}, "alive has a wrong length");
    case Kind::kSlotPosted:
      return whole(r, handoff::SlotPosted{}, "slot-posted has a wrong length");
    case Kind::kLaneNote:
      return read_note(r);
  }
  return malformed("a frame of unknown kind");
}

Mac hello_mac(const handoff::Hello& hello, HandoffKey key) { return hmac(hello_body(hello), key); }

bool hello_mac_ok(const handoff::Hello& hello, HandoffKey key) {
  return same(hello_mac(hello, key), hello.mac);
}

Mac ack_mac(const handoff::Hello& hello, const handoff::HelloAck& ack, HandoffKey key) {
  return hmac(with(ack_body(ack), hello.mac), key);
}

bool ack_mac_ok(const handoff::Hello& hello, const handoff::HelloAck& ack, HandoffKey key) {
  return same(ack_mac(hello, ack, key), ack.mac);
}

Digest layout_digest(const ModelCard& card) {
  std::string text = card.architecture + '\n' + card.kv_layout + '\n' + card.numerics + '\n';
  for (const uint64_t n :
       {card.weights.hi, card.weights.lo, uint64_t{card.layers}, uint64_t{card.kv_heads},
        uint64_t{card.head_dim}, uint64_t{card.block_tokens}, card.block_bytes}) {
    text += std::to_string(n) + ' ';
  }
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  return {h.high64, h.low64};
}

void ChunkDigest::add(uint32_t chunk, uint32_t crc) {
  const uint32_t pair[2] = {chunk, crc};
  const auto bytes = std::as_bytes(std::span(pair));
  words_.insert(words_.end(), bytes.begin(), bytes.end());
}

Digest ChunkDigest::value() const {
  const XXH128_hash_t h = XXH3_128bits(words_.data(), words_.size());
  return {h.high64, h.low64};
}

}  // namespace headrace::worker

#include "protocol/codec_common.h"

#include <kj/exception.h>

#include <algorithm>
#include <cstring>

namespace headrace::codec {
namespace {

uint32_t word32(std::span<const std::byte> bytes, size_t index) {
  uint32_t value = 0;  // little-endian, as is every machine that we build for
  std::memcpy(&value, bytes.data() + index * 4, 4);
  return value;
}

Errc errc(uint16_t value) {
  return value < raw(Errc::kUnknown) ? static_cast<Errc>(value) : Errc::kUnknown;
}

}  // namespace

std::string Cursor::where() const {
  return *field_ ? std::string(message_) + "." + field_ : std::string(message_);
}

void Cursor::refuse(const std::string& why) const {
  throw Refusal{error(Errc::kInvalid, where() + ": " + why)};
}

size_t Cursor::size(size_t entries, size_t most) const {
  if (entries > most)
    refuse(std::to_string(entries) + " entries, the limit is " + std::to_string(most));
  return entries;
}

std::string Cursor::text(capnp::Text::Reader r) const {
  if (r.size() > limits::kStringBytes)
    refuse(std::to_string(r.size()) + " bytes, the limit is " +
           std::to_string(limits::kStringBytes));
  return std::string(r.begin(), r.size());
}

Bytes Cursor::data(capnp::Data::Reader r, size_t most) const {
  if (r.size() > most)
    refuse(std::to_string(r.size()) + " bytes, the limit is " + std::to_string(most));
  const auto* begin = reinterpret_cast<const std::byte*>(r.begin());
  return r.size() == 0 ? Bytes{} : Bytes(begin, begin + r.size());
}

Duration Cursor::duration(int64_t nanoseconds) const {
  const Duration value{nanoseconds};
  if (value > limits::kDuration || value < -limits::kDuration)
    refuse(std::to_string(nanoseconds) + " ns is longer than 365 days");
  return value;
}

std::vector<Token> Cursor::tokens(capnp::List<int32_t>::Reader r, size_t most) const {
  std::vector<Token> tokens(size(r.size(), most));
  for (unsigned i = 0; i < r.size(); ++i) tokens[i] = r[i];
  return tokens;
}

Finish Cursor::finish(uint8_t value) const {
  if (value > static_cast<uint8_t>(Finish::kError))
    refuse("unknown finish " + std::to_string(value));
  return static_cast<Finish>(value);
}

Role Cursor::role(uint8_t value) const {
  if (value > static_cast<uint8_t>(Role::kBoth)) refuse("unknown role " + std::to_string(value));
  return static_cast<Role>(value);
}

Status Cursor::status(wire::Status::Reader r) const {
  return {errc(r.getCode()), text(r.getMessage())};
}

Endpoint Cursor::endpoint(wire::Endpoint::Reader r) const {
  return {text(r.getHost()), r.getPort()};
}

GrantedBlocks Cursor::granted(wire::GrantedBlocks::Reader r) {
  GrantedBlocks granted;
  granted.decode = at("decode").id<Incarnation>(r.getDecode());
  granted.endpoint = at("endpoint").endpoint(r.getEndpoint());
  granted.key = at("key").id<HandoffKey>(r.getKey());
  at("blocks");
  const auto blocks = r.getBlocks();
  granted.blocks.reserve(size(blocks.size(), limits::kBlocks));
  for (auto b : blocks)
    granted.blocks.push_back({BlockId{b.getBlock()}, Generation{b.getGeneration()}});
  granted.first_block = r.getFirstBlock();
  return granted;
}

std::vector<TransferId> Cursor::transfers(capnp::List<wire::Id128>::Reader r) const {
  std::vector<TransferId> ids;
  ids.reserve(size(r.size(), limits::kTransfers));
  for (auto id128 : r) ids.push_back(id<TransferId>(id128));
  return ids;
}

void write(wire::Status::Builder b, const Status& status) {
  b.setCode(raw(status.code));
  // A peer refuses a longer text, and this one may quote someone's input.
  b.setMessage(wire_text(status.message.substr(0, limits::kStringBytes)));
}

void write(wire::Endpoint::Builder b, const Endpoint& endpoint) {
  b.setHost(wire_text(endpoint.host));
  b.setPort(endpoint.port);
}

void write(wire::GrantedBlocks::Builder b, const GrantedBlocks& granted) {
  write(b.initDecode(), granted.decode);
  write(b.initEndpoint(), granted.endpoint);
  write(b.initKey(), granted.key);
  auto blocks = b.initBlocks(static_cast<unsigned>(granted.blocks.size()));
  for (unsigned i = 0; i < blocks.size(); ++i) {
    blocks[i].setBlock(raw(granted.blocks[i].block));
    blocks[i].setGeneration(raw(granted.blocks[i].generation));
  }
  b.setFirstBlock(granted.first_block);
}

void write(capnp::List<wire::Id128>::Builder b, const std::vector<TransferId>& ids) {
  for (unsigned i = 0; i < b.size(); ++i) write(b[i], ids[i]);
}

void write(capnp::List<int32_t>::Builder b, const std::vector<Token>& tokens) {
  for (unsigned i = 0; i < b.size(); ++i) b.set(i, tokens[i]);
}

int64_t wire_duration(Duration duration) {
  return std::clamp(duration, -limits::kDuration, limits::kDuration).count();
}

capnp::Text::Reader wire_text(const std::string& text) { return {text.c_str(), text.size()}; }

capnp::Data::Reader wire_data(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

Bytes Writer::finish() {
  const auto segments = message_.getSegmentsForOutput();
  CHECK(segments.size() <= limits::kSegments);
  const auto words = capnp::messageToFlatArray(segments);
  const auto bytes = words.asBytes();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.begin());
  return Bytes(begin, begin + bytes.size());
}

Status check_segments(std::span<const std::byte> frame) {
  const auto bad = [](const std::string& why) { return error(Errc::kInvalid, "frame: " + why); };
  if (frame.size() < 8 || frame.size() % 8 != 0)
    return bad(std::to_string(frame.size()) + " bytes are no whole words");
  const uint64_t count = uint64_t{word32(frame, 0)} + 1;
  if (count > limits::kSegments)
    return bad(std::to_string(count) + " segments, the limit is " +
               std::to_string(limits::kSegments));
  uint64_t words = count / 2 + 1;  // the table: count, then sizes, padded to a word
  if (words * 8 > frame.size()) return bad("cut inside the segment table");
  for (uint64_t i = 0; i < count; ++i) words += word32(frame, i + 1);
  if (words * 8 != frame.size())
    return bad("segments of " + std::to_string(words * 8) + " bytes in a frame of " +
               std::to_string(frame.size()));
  return {};
}

Status read_frame(std::span<const std::byte> frame, size_t bytes_max, Cursor& cursor,
                  const std::function<void(capnp::MessageReader&)>& body) {
  if (frame.size() > bytes_max)
    return error(Errc::kInvalid, "frame: " + std::to_string(frame.size()) +
                                     " bytes, the limit is " + std::to_string(bytes_max));
  if (Status status = check_segments(frame); !status.ok()) return status;
  auto words = kj::heapArray<capnp::word>(frame.size() / 8);
  std::memcpy(words.begin(), frame.data(), frame.size());
  capnp::ReaderOptions options;
  options.traversalLimitInWords = words.size() * limits::kTraversalFactor;
  options.nestingLimit = limits::kNesting;
  try {
    capnp::FlatArrayMessageReader reader(words, options);
    body(reader);
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const kj::Exception& exception) {
    return error(Errc::kInvalid,
                 cursor.where() + ": " + std::string(exception.getDescription().cStr()));
  }
  return {};
}

}  // namespace headrace::codec

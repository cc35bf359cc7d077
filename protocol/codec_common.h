#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "protocol/codec.h"
#include "protocol/limits.h"
#include "protocol/mesh.capnp.h"

// Shared by the codec's sources and by nothing else.
namespace headrace::codec {

// Thrown by Cursor, caught in read_frame: never leaves the codec.
struct Refusal {
  Status status;
};

// Reads values out of Cap'n Proto readers and remembers which field it is at, so that whatever goes
// wrong, here or inside the library, is reported by name:
//   m.name = c.at("name").text(r.getName());   // `at` runs before the getter
class Cursor {
 public:
  explicit Cursor(const char* message) : message_(message) {}

  Cursor& message(const char* message) {
    message_ = message;
    field_ = "";
    return *this;
  }
  Cursor& at(const char* field) {
    field_ = field;
    return *this;
  }
  std::string where() const;
  [[noreturn]] void refuse(const std::string& why) const;

  // Refuses more than `most`; returns the size.
  size_t size(size_t entries, size_t most) const;
  std::string text(capnp::Text::Reader r) const;
  Bytes data(capnp::Data::Reader r, size_t most) const;
  Duration duration(int64_t nanoseconds) const;
  std::vector<Token> tokens(capnp::List<int32_t>::Reader r, size_t most) const;
  Finish finish(uint8_t value) const;
  Role role(uint8_t value) const;
  Status status(wire::Status::Reader r) const;
  Endpoint endpoint(wire::Endpoint::Reader r) const;
  GrantedBlocks granted(wire::GrantedBlocks::Reader r);
  template <class Id>
  Id id(wire::Id128::Reader r) const {
    return Id{r.getHi(), r.getLo()};
  }
  std::vector<TransferId> transfers(capnp::List<wire::Id128>::Reader r) const;

 private:
  const char* message_;
  const char* field_ = "";
};

template <class Id>
void write(wire::Id128::Builder b, const Id& id) {
  b.setHi(id.hi);
  b.setLo(id.lo);
}
void write(wire::Status::Builder b, const Status& status);
void write(wire::Endpoint::Builder b, const Endpoint& endpoint);
void write(wire::GrantedBlocks::Builder b, const GrantedBlocks& granted);
void write(capnp::List<wire::Id128>::Builder b, const std::vector<TransferId>& ids);
void write(capnp::List<int32_t>::Builder b, const std::vector<Token>& tokens);
int64_t wire_duration(Duration duration);  // clamped to limits::kDuration
capnp::Text::Reader wire_text(const std::string& text);
capnp::Data::Reader wire_data(std::span<const std::byte> bytes);

// A message whose first segment has room for about `bytes`.
class Writer {
 public:
  explicit Writer(size_t bytes) : message_(static_cast<unsigned>(bytes / 8 + 128)) {}
  template <class Root>
  typename Root::Builder root() {
    return message_.initRoot<Root>();
  }
  Bytes finish();

 private:
  capnp::MallocMessageBuilder message_;
};

// Checks the segment table (stock Cap'n Proto trusts it too early): at most 64 segments whose sizes
// add up to exactly the frame.
Status check_segments(std::span<const std::byte> frame);

// Checks `frame`, copies it to aligned memory and hands a reader to `body`; turns every refusal and
// every exception of the library into kInvalid.
Status read_frame(std::span<const std::byte> frame, size_t bytes_max, Cursor& cursor,
                  const std::function<void(capnp::MessageReader&)>& body);

}  // namespace headrace::codec

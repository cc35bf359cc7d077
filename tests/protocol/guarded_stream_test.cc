#include "protocol/guarded_stream.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>
#include <kj/async-io.h>

#include <string>

#include "protocol/api.capnp.h"

namespace headrace {
namespace {

std::string flat(capnp::MessageBuilder& message) {
  const auto words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  return {bytes.asChars().begin(), bytes.size()};
}

// A pipe: raw bytes in at one end, the guard at the other.
struct Scene {
  Scene() : io(kj::setupAsyncIo()), pipe(io.provider->newTwoWayPipe()) {
    limits.bytes_max = 4096;
    limits.progress_deadline = 200ms;
  }
  void feed(const std::string& bytes) {
    pipe.ends[0]->write(bytes.data(), bytes.size()).wait(io.waitScope);
  }
  // The text of the next message, "<end>" at the end, or what was thrown.
  std::string next() {
    GuardedStream guard(*pipe.ends[1], io.provider->getTimer(), limits);
    std::string out;
    KJ_IF_MAYBE (e, kj::runCatchingExceptions([&]() {
                   auto got = guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr)
                                  .wait(io.waitScope);
                   KJ_IF_MAYBE (m, got) {
                     const auto text = m->reader->getRoot<api::Error>().getMessage();
                     out.assign(text.begin(), text.size());
                   } else {
                     out = "<end>";
                   }
                 }))
      out = std::string("thrown: ") + e->getDescription().cStr();
    return out;
  }
  kj::AsyncIoContext io;
  kj::TwoWayPipe pipe;
  GuardLimits limits;
};

}  // namespace

TEST_CASE("messages pass, however they are cut; then the end") {
  Scene s;
  capnp::MallocMessageBuilder one;
  one.initRoot<api::Error>().setMessage("first");
  capnp::MallocMessageBuilder many(1, capnp::AllocationStrategy::FIXED_SIZE);  // many segments
  auto e = many.initRoot<api::Error>();
  e.setMessage("second");
  e.setField("of several segments");
  REQUIRE(many.getSegmentsForOutput().size() > 1);
  s.feed(flat(one) + flat(many));
  CHECK(s.next() == "first");
  CHECK(s.next() == "second");
  for (const char c : flat(one)) {
    const std::string byte(1, c);
    s.feed(byte);
  }
  CHECK(s.next() == "first");
  s.pipe.ends[0]->shutdownWrite();
  CHECK(s.next() == "<end>");
}

TEST_CASE("tables that lie are refused before anything is reserved") {
  const std::string cases[] = {std::string(8, '\xFF'), std::string("\x40\0\0\0\x01\0\0\0", 8),
                               std::string("\0\0\0\0\xFF\xFF\xFF\xFF", 8),
                               std::string("\0\0\0\0\x00\x02\0\0", 8)};
  for (const std::string& bytes : cases) {
    Scene s;
    s.feed(bytes + std::string(64, '\xFF'));
    const std::string said = s.next();
    CHECK(said.find("limit") != std::string::npos);
  }
  // The largest that fits: 4096 bytes with its table.
  Scene s;
  s.feed(std::string("\0\0\0\0\xFF\x01\0\0", 8) + std::string(511 * 8, '\0'));
  CHECK(s.next() == "");
}

TEST_CASE("a message begun and not finished ends at its deadline, or with the stream") {
  Scene s;
  SUBCASE("silence") {
    s.feed(std::string("\0\0\0\0\x02\0\0\0", 8) + "abc");
    CHECK(s.next().find("thrown") == 0);
  }
  SUBCASE("end") {
    s.feed(std::string("\0\0\0", 3));
    s.pipe.ends[0]->shutdownWrite();
    CHECK(s.next().find("ended inside") != std::string::npos);
  }
}

TEST_CASE("what it writes, it reads") {
  Scene s;
  capnp::MallocMessageBuilder message;
  message.initRoot<api::Error>().setMessage("there");
  GuardedStream writer(*s.pipe.ends[0], s.io.provider->getTimer(), s.limits);
  const auto segments = message.getSegmentsForOutput();
  writer.writeMessage(nullptr, segments).wait(s.io.waitScope);
  CHECK(s.next() == "there");
  KJ_IF_MAYBE (size, writer.getSendBufferSize())
    CHECK(*size == 16 << 10);
  else
    FAIL("no size");
}

}  // namespace headrace

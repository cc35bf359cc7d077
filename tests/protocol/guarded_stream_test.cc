#include "protocol/guarded_stream.h"

#include <capnp/message.h>
#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>
#include <kj/async-io.h>

#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

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
    limits.first_bytes_max = 4096;
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
  // One message of RPC through this guard; what was thrown, or nothing.
  std::string pass(GuardedStream& guard, capnp::MessageBuilder& message) {
    feed(flat(message));
    std::string out;
    KJ_IF_MAYBE (e, kj::runCatchingExceptions([&]() {
                   guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr)
                       .wait(io.waitScope);
                 }))
      out = e->getDescription().cStr();
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

TEST_CASE("padding of the table has to be zero") {
  Scene s;
  s.feed(std::string("\x01\0\0\0\x01\0\0\0\x01\0\0\0\x07\0\0\0", 16) + std::string(16, '\0'));
  CHECK(s.next().find("padding") != std::string::npos);
}

TEST_CASE("a large message grows as it comes; the first one may be held smaller") {
  Scene s;
  s.limits.bytes_max = s.limits.first_bytes_max = 4 << 20;
  capnp::MallocMessageBuilder large;
  const std::string text(3'000'000, 'y');
  large.initRoot<api::Error>().setMessage(text);
  const std::string bytes = flat(large);
  std::thread writer([&] {
    KJ_IF_MAYBE (fd, s.pipe.ends[0]->getFd())
      for (size_t at = 0; at < bytes.size();) {
        const ssize_t n =
            write(*fd, bytes.data() + at, std::min<size_t>(bytes.size() - at, 70'001));
        if (n > 0) at += static_cast<size_t>(n);
      }
  });
  CHECK(s.next() == text);
  writer.join();
  s.limits.first_bytes_max = 4096;
  s.feed(bytes.substr(0, 64));
  CHECK(s.next().find("larger than the limit") != std::string::npos);
}

TEST_CASE("a byte now and then is no progress; this loop's own lateness is no fault of the peer") {
  Scene s;
  s.limits.progress_deadline = 300ms;
  capnp::MallocMessageBuilder message;
  message.initRoot<api::Error>().setMessage("there");
  const std::string bytes = flat(message);
  SUBCASE("drip") {
    std::atomic<bool> over = false;
    std::thread writer([&] {
      KJ_IF_MAYBE (fd, s.pipe.ends[0]->getFd()) {
        for (size_t i = 0; i < bytes.size() && !over; ++i) {
          if (write(*fd, bytes.data() + i, 1) != 1) return;
          std::this_thread::sleep_for(50ms);
        }
      }
    });
    CHECK(s.next().find("did not go on") != std::string::npos);
    over = true;
    writer.join();
  }
  SUBCASE("late loop") {
    s.feed(bytes.substr(0, 10));
    GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits);
    auto reading = guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr);
    CHECK_FALSE(reading.poll(s.io.waitScope));
    KJ_IF_MAYBE (fd, s.pipe.ends[0]->getFd())
      CHECK(write(*fd, bytes.data() + 10, bytes.size() - 10) ==
            static_cast<ssize_t>(bytes.size() - 10));
    std::this_thread::sleep_for(500ms);  // nothing runs here meanwhile
    const auto got = reading.wait(s.io.waitScope);
    CHECK(got != nullptr);
  }
}

TEST_CASE("questions count until they are both answered and finished") {
  namespace rpc = capnp::rpc;
  Scene s;
  s.limits.questions_max = 3;
  GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits);
  const auto ask = [&](uint32_t id) {
    capnp::MallocMessageBuilder m;
    if (id % 2 == 0)
      m.initRoot<rpc::Message>().initBootstrap().setQuestionId(id);
    else
      m.initRoot<rpc::Message>().initCall().setQuestionId(id);
    return s.pass(guard, m);
  };
  const auto finish = [&](uint32_t id) {
    capnp::MallocMessageBuilder m;
    m.initRoot<rpc::Message>().initFinish().setQuestionId(id);
    return s.pass(guard, m);
  };
  const auto answer = [&](uint32_t id) {
    capnp::MallocMessageBuilder m;
    m.initRoot<rpc::Message>().initReturn().setAnswerId(id);
    guard.writeMessage(nullptr, m.getSegmentsForOutput()).wait(s.io.waitScope);
  };
  for (uint32_t id = 0; id < 100; ++id) {
    REQUIRE(ask(id).empty());
    if (id % 3 == 0) answer(id);
    REQUIRE(finish(id).empty());
    if (id % 3 != 0) answer(id);
  }
  for (uint32_t id = 200; id < 203; ++id) REQUIRE(ask(id).empty());
  CHECK(finish(200).empty());  // not answered: still open
  CHECK_FALSE(guard.offended());
  CHECK(ask(203).find("open questions") != std::string::npos);
  CHECK(guard.offended());
}

TEST_CASE("a peer that does not read is not read from, and given up in the end") {
  Scene s;
  s.limits.bytes_max = s.limits.first_bytes_max = 16 << 20;
  s.limits.unread_bytes_max = 1;
  s.limits.write_deadline = 3s;  // what is asked before is done long before, also on a busy machine
  auto gone = std::make_shared<bool>(false);
  GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits, gone);
  capnp::MallocMessageBuilder large, small;
  large.initRoot<api::Error>().setMessage(std::string(8 << 20, 'z'));
  small.initRoot<api::Error>().setMessage("x");
  auto writing = guard.writeMessage(nullptr, large.getSegmentsForOutput());
  CHECK_FALSE(writing.poll(s.io.waitScope));
  CHECK(s.pass(guard, small).empty());  // the first is within what is allowed
  s.feed(flat(small));
  auto second = guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr);
  CHECK_FALSE(second.poll(s.io.waitScope));
  bool failed = false;
  KJ_IF_MAYBE (e, kj::runCatchingExceptions([&]() { writing.wait(s.io.waitScope); }))
    failed = e->getDescription() != nullptr;
  CHECK(failed);
  CHECK(*gone);
  CHECK(second.poll(s.io.waitScope));
}

TEST_CASE("a peer that is gone at the first word is lost, not dropped") {
  Scene s;
  s.limits.unread_bytes_max = 4096;
  auto gone = std::make_shared<bool>(false);
  GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits, gone);
  s.pipe.ends[0] = nullptr;
  capnp::MallocMessageBuilder message;
  message.initRoot<api::Error>().setMessage("x");
  KJ_IF_MAYBE (e, kj::runCatchingExceptions([&]() {
                 guard.writeMessage(nullptr, message.getSegmentsForOutput()).wait(s.io.waitScope);
               }))
    CHECK(e->getType() == kj::Exception::Type::DISCONNECTED);
  else
    FAIL("nobody was there");
  CHECK(*gone);
}

TEST_CASE("a question soon after another waits for its turn; an answer never does") {
  namespace rpc = capnp::rpc;
  Scene s;
  s.limits.questions_max = 8;
  s.limits.calm = 1h;
  auto closed = std::make_shared<Turnstile>(s.io.provider->getTimer(), 0);  // nobody passes
  GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits, nullptr, nullptr,
                      closed);
  capnp::MallocMessageBuilder question, other, answer;
  question.initRoot<rpc::Message>().initCall().setQuestionId(1);
  other.initRoot<rpc::Message>().initCall().setQuestionId(2);
  answer.initRoot<rpc::Message>().initReturn().setAnswerId(1);
  CHECK(s.pass(guard, question).empty());
  CHECK(s.pass(guard, answer).empty());
  s.feed(flat(other));
  auto waits = guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr);
  CHECK_FALSE(waits.poll(s.io.waitScope));
  CHECK(closed->waiting() == 1);
}

TEST_CASE(
    "a stranger waits for its turn with every word and with its end, one who is known does not") {
  namespace rpc = capnp::rpc;
  for (const bool known : {false, true}) {
    for (const bool ends : {false, true}) {
      Scene s;
      s.limits.questions_max = 8;
      auto closed = std::make_shared<Turnstile>(s.io.provider->getTimer(), 0);  // nobody passes
      auto tab = std::make_shared<PeerTab>(std::make_shared<PeersTotal>(), 0);
      tab->know(known);
      GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits, nullptr, tab,
                          closed);
      if (ends) {
        s.pipe.ends[0] = nullptr;
      } else {
        capnp::MallocMessageBuilder question;
        question.initRoot<rpc::Message>().initCall().setQuestionId(1);
        s.feed(flat(question));
      }
      auto word = guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr);
      CHECK(word.poll(s.io.waitScope) == known);
      CHECK(closed->waiting() == (known ? 0 : 1));
    }
  }
}

TEST_CASE("a stranger who breaks a limit is told so in its turn") {
  Scene s;
  auto closed = std::make_shared<Turnstile>(s.io.provider->getTimer(), 0);
  auto tab = std::make_shared<PeerTab>(std::make_shared<PeersTotal>(), 0);
  GuardedStream guard(*s.pipe.ends[1], s.io.provider->getTimer(), s.limits, nullptr, tab, closed);
  s.feed(std::string(8, '\xff'));
  auto word = guard.tryReadMessage(nullptr, capnp::ReaderOptions(), nullptr);
  CHECK_FALSE(word.poll(s.io.waitScope));
  CHECK(closed->waiting() == 1);
  CHECK(guard.offended());
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

// What a client may do that speaks the protocol and means no good: notes on each limit are in
// coordinator/gateway.h. After each of them another client is answered as ever.
#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/coordinator/edge.h"
#include "tests/coordinator/raw_client.h"

namespace headrace::coordinator {
using namespace fakes;
namespace {

struct Hostile {
  Hostile() : good(edge.connect()) {
    REQUIRE(good);
    REQUIRE(edge.ready(*good));
  }
  ~Hostile() {
    const auto answer = good->generate({.prompt = "HAL"}, {})->wait();
    REQUIRE(answer);
    CHECK(answer->text == "IBM.");
    CHECK(Edge::eventually([&] {
      auto s = good->status();
      return s && s->running + s->waiting + s->draining == 0;
    }));
  }
  uint16_t port() const { return edge.gateway->endpoint().port; }
  Edge edge;
  std::unique_ptr<client::Client> good;
};

// Says what `make` gives for 1, 2, ... until the other side closes; how many it took.
template <class Make>
uint32_t flood(RawRpc& raw, uint32_t most, Make make) {
  for (uint32_t i = 1; i <= most; ++i)
    if (!raw.say(make(i))) return i;
  return raw.closed() ? most : most + 1;
}

constexpr uint32_t kFlood = 200'000;

}  // namespace

TEST_CASE("bootstraps without end are closed at the cap") {
  Hostile scene;
  RawRpc raw(scene.port());
  CHECK(flood(raw, kFlood, [](uint32_t i) { return RawRpc::bootstrap(i); }) < kFlood);
  CHECK(Edge::eventually([&] { return scene.edge.gateway->offenders() == 1; }));
}

TEST_CASE("running calls are refused at their limit, questions closed at theirs") {
  Hostile scene;
  RawRpc raw(scene.port());
  REQUIRE(raw.say(RawRpc::bootstrap(0) + RawRpc::finish(0)));
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  for (uint32_t i = 1; i <= Gateway::kOpenCallsMax; ++i) REQUIRE(raw.say(RawRpc::generate(i, "~")));
  // In words for the next one, and a short question is still answered.
  REQUIRE(raw.say(RawRpc::generate(1000, "HAL")));
  CHECK(raw.answer(1000) == "ok");  // a result with an error in it
  REQUIRE(raw.say(RawRpc::hello(1001)));
  CHECK(raw.answer(1001) == "ok");
  CHECK(flood(raw, kFlood, [](uint32_t i) { return RawRpc::generate(2000 + i, "~"); }) < kFlood);
}

TEST_CASE("calls on the promise of a call that never returns count, also when dropped") {
  Hostile scene;
  RawRpc raw(scene.port());
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  REQUIRE(raw.say(RawRpc::generate(1, "~")));
  const auto pipelined = [](uint32_t i) {
    capnp::MallocMessageBuilder m;
    RawRpc::call(m, 1 + i, i == 1 ? 1 : i, RawRpc::kHeadrace, RawRpc::kHello, true).initParams();
    return flat(m) + RawRpc::finish(1 + i);
  };
  CHECK(flood(raw, kFlood, pipelined) < kFlood);
}

TEST_CASE("unknown interfaces and methods are said to be unknown") {
  Hostile scene;
  RawRpc raw(scene.port());
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  capnp::MallocMessageBuilder one, two;
  RawRpc::call(one, 1, 0, 0x1234, 0).initParams();
  RawRpc::call(two, 2, 0, RawRpc::kHeadrace, 999).initParams();
  REQUIRE(raw.say(flat(one)));
  CHECK(raw.answer(1).find("unimplemented") == 0);
  REQUIRE(raw.say(flat(two)));
  CHECK(raw.answer(2).find("unimplemented") == 0);
  // Null parameters are a request without a prompt.
  capnp::MallocMessageBuilder three;
  RawRpc::call(three, 3, 0, RawRpc::kHeadrace, RawRpc::kGenerate).initParams();
  REQUIRE(raw.say(flat(three)));
  CHECK(raw.answer(3) == "ok");
}

TEST_CASE("capabilities that are not there, embargoes and resolutions of nothing") {
  Hostile scene;
  namespace rpc = capnp::rpc;
  const auto try_one = [&](auto fill) {
    RawRpc raw(scene.port());
    REQUIRE(raw.say(RawRpc::bootstrap(0)));
    REQUIRE(raw.answer(0) == "ok");
    for (uint32_t i = 1; i < 2000; ++i) {
      capnp::MallocMessageBuilder m;
      fill(m.initRoot<rpc::Message>(), i);
      if (!raw.say(flat(m))) return;  // closed, as it may be
    }
  };
  try_one([](rpc::Message::Builder m, uint32_t i) {  // a released or foreign capability
    auto c = m.initCall();
    c.setQuestionId(i);
    c.initTarget().setImportedCap(77);
  });
  try_one([](rpc::Message::Builder m, uint32_t i) {
    auto r = m.initResolve();
    r.setPromiseId(i);
    r.initCap().setSenderHosted(i);
  });
  try_one([](rpc::Message::Builder m, uint32_t i) {
    auto d = m.initDisembargo();
    d.initTarget().setImportedCap(0);
    d.initContext().setSenderLoopback(i);
  });
  try_one([](rpc::Message::Builder m, uint32_t i) { m.initRelease().setId(i); });
}

// Many pointers to one text: small to send, huge to read.
TEST_CASE("amplification: what may be visited is bounded by what was sent") {
  Hostile scene;
  constexpr uint32_t kMessages = 5'000;
  constexpr size_t kText = 30'000;
  capnp::MallocMessageBuilder m(1 << 17);
  auto params = RawRpc::call(m, 1, 0, RawRpc::kHeadrace, RawRpc::kGenerate).initParams();
  capnp::BuilderCapabilityTable table;
  auto content = table.imbue(params.getContent()).initAs<api::Headrace::GenerateParams>();
  content.setSink(api::TokenSink::Client(capnp::newBrokenCap("by hand")));
  auto chat = content.initRequest().initPrompt().initChat().initMessages(kMessages);
  chat[0].setContent(std::string(kText, 'x'));
  REQUIRE(m.getSegmentsForOutput().size() == 1);
  std::string bytes = flat(m);
  auto* words = reinterpret_cast<uint64_t*>(bytes.data());
  const size_t count = bytes.size() / 8, text = bytes.find("xxxxxxxx") / 8;
  // The pointer to the text (kind 1, offset in words from behind it), then the same for all.
  size_t at = 0;
  for (size_t i = 1; i < text && at == 0; ++i)
    if ((words[i] & 3) == 1 && i + 1 + ((words[i] & 0xFFFFFFFF) >> 2) == text &&
        words[i] >> 35 == kText + 1)
      at = i;
  REQUIRE(at > 0);
  const uint64_t shape = words[at] >> 32 << 32;
  for (uint32_t i = 0; i < kMessages; ++i) {
    const size_t p = at + 2 * size_t{i};  // role, content, role, ...
    REQUIRE(p < count);
    words[p] = shape | (text - p - 1) << 2 | 1;
  }
  RawRpc raw(scene.port());
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  REQUIRE(raw.say(bytes));
  const std::string said = raw.answer(1);
  CHECK(said != "ok");
  CHECK(said != "closed");
  REQUIRE(raw.say(RawRpc::hello(2)));
  CHECK(raw.answer(2) == "ok");  // the call failed, not the connection
}

TEST_CASE("who does not read is not read from") {
  Hostile scene;
  RawRpc raw(scene.port());
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  size_t taken = 0;
  constexpr size_t kEnough = 64u << 20;  // far more than all buffers between us
  uint32_t question = 1;
  std::string next;
  for (int idle = 0; idle < 100 && taken < kEnough;) {
    if (next.empty()) {
      next = RawRpc::hello(question) + RawRpc::finish(question);
      ++question;
    }
    const size_t went = raw.try_say(next);
    next.erase(0, went);
    taken += went;
    if (went == 0) {
      ++idle;
      std::this_thread::sleep_for(5ms);
    } else {
      idle = 0;
    }
  }
  CHECK(taken < kEnough);
}

TEST_CASE("answers that are not finished are few; finished, the others come") {
  Hostile scene;
  RawRpc raw(scene.port());
  constexpr uint32_t kAsked = 250;
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  for (uint32_t i = 1; i <= kAsked; ++i) REQUIRE(raw.say(RawRpc::status(i)));
  std::this_thread::sleep_for(1s);  // enough for all of them, were they not held back
  REQUIRE(raw.say(RawRpc::hello(1000)));
  const uint32_t came = raw.answers_before(1000);
  CHECK(came >= 2);
  CHECK(came < kAsked / 2);
  for (uint32_t i = 1; i < came; ++i) REQUIRE(raw.say(RawRpc::finish(i)));
  CHECK(raw.answer(came) == "ok");
}

TEST_CASE("of all that is held in halves of messages there is a limit: who holds most is closed") {
  Hostile scene;
  constexpr size_t kPart = Gateway::kFrameBytesMax - 4096;
  constexpr size_t kEnough = 2 * Gateway::kHeldBytesMax / kPart;
  constexpr uint32_t words = Gateway::kFrameBytesMax / 8 - 1;
  std::string half(kPart, '\0');
  std::memcpy(half.data() + 4, &words, sizeof words);
  std::vector<std::unique_ptr<RawRpc>> held;
  for (size_t i = 0; i < kEnough; ++i) {
    held.push_back(std::make_unique<RawRpc>(scene.port()));
    held.back()->say(RawRpc::bootstrap(0) + half);  // may be closed on the way
  }
  CHECK(Edge::eventually([&] { return scene.edge.gateway->offenders() >= kEnough / 3; }));
}

TEST_CASE("who asks without end does not keep others waiting") {
  Hostile scene;
  std::vector<std::unique_ptr<RawRpc>> crowd;
  for (int i = 0; i < 40; ++i) {
    crowd.push_back(std::make_unique<RawRpc>(scene.port()));
    std::string all = RawRpc::bootstrap(0);
    for (uint32_t q = 1; q < 250; ++q) all += RawRpc::hello(q);
    REQUIRE(crowd.back()->say(all));
  }
  CHECK(scene.good->generate({.prompt = "HAL"}, {})->wait());
  // The crowd is served too, in its turn.
  for (const auto& one : crowd) CHECK(one->answer(249) == "ok");
}

TEST_CASE("a client that vanishes in the middle of its answer leaves nothing") {
  Hostile scene;
  {
    RawRpc raw(scene.port());
    REQUIRE(raw.say(RawRpc::bootstrap(0)));
    for (uint32_t i = 1; i <= 20; ++i) REQUIRE(raw.say(RawRpc::generate(i, i % 2 ? "~" : "*")));
    REQUIRE(raw.answer(0) == "ok");
  }
  CHECK(Edge::eventually([&] {
    auto s = scene.good->status();
    return s && s->running + s->waiting + s->draining == 0;
  }));
}

}  // namespace headrace::coordinator

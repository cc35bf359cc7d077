#include "tests/coordinator/edge.h"

#include <doctest/doctest.h>

#include "tests/coordinator/raw_client.h"

namespace headrace::coordinator {
using namespace fakes;
TEST_CASE("bytes that are no message close their connection and no other") {
  Edge edge;
  REQUIRE(edge.gateway);
  auto good = edge.connect();
  REQUIRE(good);
  REQUIRE(edge.ready(*good));
  const std::string cases[] = {
      std::string(8, '\xFF'),                                                 // 2^32 segments
      std::string("\x40\0\0\0\x01\0\0\0", 8),                                 // 65 segments
      std::string("\0\0\0\0\xFF\xFF\xFF\x7F", 8),                             // 16 GiB
      std::string("\x01\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0", 16),  // sizes that wrap
      std::string("\0\0\0\0\x02\0\0\0", 8) + std::string(16, '\xAA'),  // a message of nonsense
      std::string("\x01\0\0\0\x01\0\0\0\x01\0\0\0\x07\0\0\0", 16),     // padding with a 7
      std::string("\0\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0", 16),         // far pointer to itself
  };
  for (const std::string& bytes : cases) {
    RawSocket raw(edge.gateway->endpoint().port);
    REQUIRE(raw.connected);
    CHECK(raw.say(bytes));
    CHECK(raw.closed());
  }
  CHECK(good->status());
  CHECK(Edge::eventually([&] { return edge.gateway->offenders() == std::size(cases); }));
}

TEST_CASE("a message begun and not finished is given up") {
  Edge edge(false);
  const uint16_t port = edge.gateway->endpoint().port;
  const RawSocket half(port), large(port);
  CHECK(half.say(RawRpc::bootstrap(0).substr(0, 20)));
  // The first message is not believed to be of a megabyte.
  CHECK(large.say(std::string("\0\0\0\0\0\0\x02\0", 8)));
  CHECK(large.closed());
  CHECK(half.closed());
}

TEST_CASE("connections are limited; one that has said nothing makes room, others keep theirs") {
  Edge edge(false);
  const uint16_t port = edge.gateway->endpoint().port;
  auto good = edge.connect();
  REQUIRE(good->status());
  std::vector<std::unique_ptr<RawRpc>> many;
  for (size_t i = 1; i < Gateway::kConnectionsMax; ++i) {
    many.push_back(std::make_unique<RawRpc>(port));
    REQUIRE(many.back()->connected);
  }
  auto late = edge.connect();  // takes the place of the first of them
  REQUIRE(late);
  CHECK(late->status());
  CHECK(many.front()->closed());
  CHECK(good->status());
  many.clear();
  // With all places taken by those who have spoken, one more is closed at once.
  CHECK(Edge::eventually([&] {
    many.push_back(std::make_unique<RawRpc>(port));
    return many.back()->say(RawRpc::bootstrap(0)) && many.back()->answer(0) == "closed";
  }));
  CHECK(good->status());
  many.clear();
  CHECK(Edge::eventually([&] { return edge.connect() && edge.connect()->status(); }));
}

TEST_CASE("who never says a word loses its place; who has spoken may be silent") {
  Edge edge;
  REQUIRE(edge.gateway);
  auto good = edge.connect();
  REQUIRE(good);
  REQUIRE(edge.ready(*good));
  const RawSocket mute(edge.gateway->endpoint().port);
  REQUIRE(mute.connected);
  CHECK(mute.closed());  // after kFirstWordWithin
  CHECK(good->status());
}

TEST_CASE("a port in use, a host that does not exist: one clear line") {
  Edge edge(false);
  const std::string where = to_string(edge.gateway->endpoint());
  auto taken = Gateway::start({edge.gateway->endpoint()}, edge.node->dispatcher(), edge.random);
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == Errc::kUnavailable);
  CHECK(taken.error().message == "cannot listen on " + where + ": address already in use");
  auto nowhere =
      Gateway::start({{"no.such.host.invalid", 1}}, edge.node->dispatcher(), edge.random);
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().code == Errc::kUnavailable);
  CHECK(nowhere.error().message.find("no.such.host.invalid:1") != std::string::npos);
}

TEST_CASE("stop lets what can end end, drops the rest, and may come twice") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  auto hanging = c->generate({.prompt = "~"}, {});
  REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 1; }));
  edge.gateway->stop();
  edge.gateway->stop();
  auto end = hanging->wait();
  REQUIRE_FALSE(end);
  CHECK(end.error().code == Errc::kDisconnected);
  CHECK(Edge::eventually([&] { return edge.worker->cancels == 1; }));
  CHECK_FALSE(edge.connect());
}

}  // namespace headrace::coordinator

#include "tests/coordinator/edge.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

// A plain socket to the gateway, for what no client library would say.
struct RawSocket {
  explicit RawSocket(uint16_t port) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const timeval patience{20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawSocket() { close(fd); }
  void say(const std::string& bytes) const {
    CHECK(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  // Reads until the other side closes; false if it does not.
  bool closed() const {
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }
  int fd;
  bool connected = false;
};

}  // namespace

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
  };
  for (const std::string& bytes : cases) {
    RawSocket raw(edge.gateway->endpoint().port);
    REQUIRE(raw.connected);
    raw.say(bytes);
    CHECK(raw.closed());
  }
  CHECK(good->status());
}

TEST_CASE("connections are limited; those that leave make room") {
  Edge edge(false);
  const uint16_t port = edge.gateway->endpoint().port;
  std::vector<std::unique_ptr<RawSocket>> many;
  for (size_t i = 0; i < Gateway::kConnectionsMax; ++i) {
    many.push_back(std::make_unique<RawSocket>(port));
    REQUIRE(many.back()->connected);
  }
  RawSocket over(port);
  CHECK(over.closed());
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
  CHECK(taken.error().message == where + " is in use by another program");
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

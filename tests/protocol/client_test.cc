// The client library against peers that are gone, silent or lost; what it says to a coordinator
// that lives is tested with the gateway's sessions.
#include "protocol/client.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace headrace::client {
namespace {

// A port on loopback where someone listens and never says a word.
struct Silent {
  Silent() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) == 0);
    endpoint = {"127.0.0.1", ntohs(at.sin_port)};
  }
  ~Silent() { close(fd); }
  void listen_now() { REQUIRE(listen(fd, 8) == 0); }
  int fd;
  Endpoint endpoint;
};

}  // namespace

TEST_CASE("nobody there: one line that names the address") {
  Silent nobody;  // bound, not listening: refused
  auto c = Client::connect(nobody.endpoint);
  REQUIRE_FALSE(c);
  CHECK(c.error().code == Errc::kUnavailable);
  CHECK(c.error().message.find(to_string(nobody.endpoint)) != std::string::npos);
  auto nowhere = Client::connect({"no.such.host.invalid", 1});
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().message.find("no.such.host.invalid:1") != std::string::npos);
}

TEST_CASE("a peer that says nothing: every call ends at its deadline") {
  Silent silent;
  silent.listen_now();
  auto c = Client::connect(silent.endpoint);
  REQUIRE(c);
  CHECK((*c)->hello("x", 100ms).error().code == Errc::kDeadline);
  CHECK((*c)->status(100ms).error().code == Errc::kDeadline);
  CHECK((*c)->tokenize("a", false, 100ms).error().code == Errc::kDeadline);
  auto g = (*c)->generate({.prompt = "a"}, {});
  std::thread other([&] { g->cancel(); });
  CHECK(g->wait().error().code == Errc::kCancelled);
  other.join();
  g->cancel();  // after the end: nothing
}

TEST_CASE("an answer from a peer that says nothing is given up, though its own deadline is far") {
  Silent silent;
  silent.listen_now();
  auto c = Client::connect(silent.endpoint);
  REQUIRE(c);
  const auto begun = std::chrono::steady_clock::now();
  const auto answer = (*c)->generate({.prompt = "a"}, {})->wait();
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == Errc::kDisconnected);
  CHECK(answer.error().message.find("no sign of life") != std::string::npos);
  // Far from the ten minutes of a request without a deadline.
  CHECK(std::chrono::steady_clock::now() - begun < 60s);
}

TEST_CASE("a peer that closes ends all calls at once") {
  Silent peer;
  peer.listen_now();
  auto c = Client::connect(peer.endpoint);
  REQUIRE(c);
  auto g = (*c)->generate({.prompt = "a"}, {});
  const int accepted = accept(peer.fd, nullptr, nullptr);
  REQUIRE(accepted >= 0);
  close(accepted);
  CHECK(g->wait().error().code == Errc::kDisconnected);
  CHECK((*c)->status(60s).error().code == Errc::kDisconnected);
}

TEST_CASE("a generation may outlive its client") {
  Silent silent;
  silent.listen_now();
  auto c = Client::connect(silent.endpoint);
  REQUIRE(c);
  auto g = (*c)->generate({.prompt = "a"}, {});
  *c = nullptr;
  CHECK(g->wait().error().code == Errc::kCancelled);
  g->cancel();
}

}  // namespace headrace::client

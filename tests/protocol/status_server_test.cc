#include "protocol/status_server.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kHangMs = 60'000;  // only ends a test that hangs

StatusPages pages() {
  StatusPages p;
  p.metrics = [] { return std::string("a_total 1\n"); };
  p.state = [] { return ServiceState{true, "", false, 1}; };
  return p;
}

std::unique_ptr<StatusServer> server(StatusPages p = pages()) {
  auto made = StatusServer::start({"127.0.0.1", 0}, std::move(p));
  REQUIRE(made.has_value());
  return std::move(*made);
}

class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    REQUIRE(fd_ >= 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  Client(Client&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  ~Client() {
    if (fd_ >= 0) close(fd_);
  }
  // False once the server has closed.
  bool send(const std::string& text) const {
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  // All until the server closes or resets.
  std::string rest() const {
    std::string out;
    char piece[65536];
    while (true) {
      pollfd wait{fd_, POLLIN, 0};
      REQUIRE(poll(&wait, 1, kHangMs) == 1);
      const ssize_t n = recv(fd_, piece, sizeof piece, 0);
      if (n <= 0) return out;
      out.append(piece, static_cast<size_t>(n));
    }
  }
  bool closed_within(int ms) const {
    pollfd wait{fd_, POLLIN, 0};
    char byte;
    return poll(&wait, 1, ms) == 1 && recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  int fd_;
};

const std::string kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_CASE("a scrape is answered whole and the connection closed") {
  const auto running = server();
  const Client client(running->endpoint().port);
  CHECK(client.send(kGet));
  const std::string answer = client.rest();
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(answer.ends_with("\r\n\r\na_total 1\n"));
}

TEST_CASE("a head may come in pieces") {
  const auto running = server();
  const Client client(running->endpoint().port);
  for (const char c : kGet) REQUIRE(client.send(std::string(1, c)));
  CHECK(client.rest().starts_with("HTTP/1.1 200"));
}

TEST_CASE("a port in use is said, with its address") {
  const auto running = server();
  const auto second = StatusServer::start(running->endpoint(), pages());
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().code == Errc::kUnavailable);
  CHECK(second.error().message ==
        "cannot listen on " + to_string(running->endpoint()) + ": address already in use");
  CHECK_FALSE(StatusServer::start({"256.1.1.1", 0}, pages()).has_value());
}

TEST_CASE("it ends with connections open, and the port is free again") {
  auto running = server();
  const Endpoint at = running->endpoint();
  std::vector<Client> idle;
  for (int i = 0; i < 5; ++i) idle.emplace_back(at.port);
  CHECK(idle[0].send("GET /metr"));
  running.reset();
  for (const Client& c : idle) CHECK(c.closed_within(kHangMs));
  CHECK(StatusServer::start(at, pages()).has_value());
}

TEST_CASE("bad input: a head of 1 MB, 10,000 headers, HTTP/0.9") {
  const auto running = server();
  const auto refused = [&](const std::string& text, const std::string& code) {
    const Client client(running->endpoint().port);
    client.send(text);
    const std::string answer = client.rest();
    CHECK(answer.starts_with("HTTP/1.1 " + code + " "));
  };
  refused("GET /live HTTP/1.1\r\na: " + std::string(1'000'000, 'b'), "431");
  std::string many = "GET /live HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) many += "a" + std::to_string(i) + ": b\r\n";
  refused(many + "\r\n", "431");
  refused("GET /" + std::string(1'000'000, 'b'), "414");
  refused("GET /live\r\n", "400");
  refused("POST /metrics HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + std::string(500'000, 'x'),
          "405");
}

TEST_CASE("bad input: a head that does not end is closed at its deadline") {
  const auto running = server();
  const Client silent(running->endpoint().port);
  const Client slow(running->endpoint().port);
  const auto begun = Clock::now();
  bool open = true;
  while (open && Clock::now() - begun < std::chrono::milliseconds(kHangMs)) {
    slow.send("G");  // one byte at a time keeps nothing alive
    open = !slow.closed_within(500);
  }
  CHECK_FALSE(open);
  CHECK(silent.closed_within(kHangMs));
  CHECK(Clock::now() - begun >= StatusServer::kHeadWithin - 1s);
}

TEST_CASE("bad input: an answer that nobody takes is closed at its deadline") {
  StatusPages huge = pages();
  huge.metrics = [] { return std::string(size_t{64} << 20, 'x'); };
  const auto running = server(std::move(huge));
  const Client client(running->endpoint().port, 4096);
  CHECK(client.send(kGet));
  std::this_thread::sleep_for(StatusServer::kAnswerWithin + 1s);
  CHECK(client.rest().size() < size_t{64} << 20);
}

TEST_CASE("bad input: 500 connections leave room for a good client") {
  const auto running = server();
  std::vector<Client> crowd;
  size_t waits = 0;
  for (int i = 0; i < 500; ++i) {
    crowd.emplace_back(running->endpoint().port);
    if (i % 50 == 0) {
      const Client good(running->endpoint().port);
      CHECK(good.send(kGet));
      CHECK(good.rest().starts_with("HTTP/1.1 200"));
    }
  }
  // All but the last 32 have been closed.
  for (size_t i = 0; i + StatusServer::kConnectionsMax < crowd.size(); ++i) {
    waits += crowd[i].closed_within(kHangMs) ? 0 : 1;
  }
  CHECK(waits == 0);
}

TEST_CASE("bad input: requests in a pipeline get one answer") {
  const auto running = server();
  const Client client(running->endpoint().port);
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += kGet;
  client.send(many);
  const std::string answer = client.rest();
  CHECK(answer.starts_with("HTTP/1.1 200"));
  CHECK(answer.find("HTTP/1.1", 1) == std::string::npos);
}

}  // namespace
}  // namespace headrace

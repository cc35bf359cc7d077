#include "deploy/cli/status_port.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace headrace::cli {
namespace {

std::string get(const Endpoint& at, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(at.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
  REQUIRE(send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  std::string out;
  char piece[4096];
  for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;) {
    out.append(piece, static_cast<size_t>(n));
  }
  close(fd);
  return out;
}
bool says(const std::string& answer, const std::string& what) {
  return answer.find(what) != std::string::npos;
}

TEST_CASE("a worker lives from its first second and is ready once it has joined") {
  const auto opened = WorkerStatusPort::open(kWorkerMetrics, "decode");
  REQUIRE(opened.has_value());
  WorkerStatusPort& port = **opened;
  const Endpoint at = port.endpoint();
  REQUIRE(at.port != 0);
  port.loading(0.5);
  CHECK(says(get(at, "/live"), " 200 "));
  std::string ready = get(at, "/ready");
  CHECK(says(ready, " 503 "));
  CHECK(says(ready, "the model is being loaded"));
  CHECK(says(ready, "\"loaded\":0.500"));
  CHECK(says(get(at, "/metrics"), "headrace_model_loaded_ratio{role=\"decode\"} 0.5\n"));
  port.loaded({}, 10);
  CHECK(says(get(at, "/ready"), "it has not joined a coordinator yet"));
  port.joined();
  CHECK(says(get(at, "/ready"), " 200 "));
  port.lost("connection refused");
  CHECK(says(get(at, "/ready"), "no coordinator: connection refused"));
  port.joined();
  port.draining();
  port.joined();  // a late word changes nothing
  ready = get(at, "/ready");
  CHECK(says(ready, " 503 "));
  CHECK(says(ready, "\"draining\":true"));
  CHECK(says(get(at, "/version"), "{\"version\":\"" HEADRACE_VERSION "\"}"));
}

TEST_CASE("a coordinator is ready when its Dispatcher says so, and names all targets") {
  const auto opened = CoordinatorStatusPort::open("127.0.0.1:0", true);
  REQUIRE(opened.has_value());
  const Endpoint at = (*opened)->endpoint();
  CHECK(says(get(at, "/ready"), " 503 "));
  coordinator::ClusterStatus status;
  status.ready = true;
  status.metrics = at;
  (*opened)->probes()->status(status);
  CHECK(says(get(at, "/ready"), " 200 "));
  CHECK(says(get(at, "/metrics"), "\nheadrace_ready 1\n"));
  CHECK(says(get(at, "/sd/prometheus"), to_string(at)));
  status.leaving = true;
  (*opened)->probes()->status(status);
  const std::string leaving = get(at, "/ready");
  CHECK(says(leaving, " 503 "));
  CHECK(says(leaving, "Retry-After: 1"));
}

TEST_CASE("the default address gives way, a chosen one is refused when it is taken") {
  const auto first = CoordinatorStatusPort::open("127.0.0.1:0", true);
  REQUIRE(first.has_value());
  const std::string taken = to_string((*first)->endpoint());
  const auto chosen = CoordinatorStatusPort::open(taken, true);
  REQUIRE_FALSE(chosen.has_value());
  CHECK(says(chosen.error().message, taken));
  const auto given_way = CoordinatorStatusPort::open(taken, false);
  REQUIRE(given_way.has_value());
  CHECK((*given_way)->endpoint().port != 0);
  CHECK((*given_way)->endpoint().port != (*first)->endpoint().port);
}

TEST_CASE("none: nobody listens and nothing is counted") {
  const auto coordinator = CoordinatorStatusPort::open(kNoMetrics, true);
  REQUIRE(coordinator.has_value());
  CHECK((*coordinator)->endpoint().port == 0);
  CHECK((*coordinator)->probes() == nullptr);
  const auto opened = WorkerStatusPort::open(kNoMetrics, "both");
  REQUIRE(opened.has_value());
  CHECK((*opened)->endpoint().port == 0);
  CHECK((*opened)->probes() == nullptr);
  (*opened)->loading(0.5);
  (*opened)->loaded({}, 1);
  (*opened)->joined();
}

TEST_CASE("--metrics takes HOST:PORT or none") {
  CLI::App app;
  std::string at;
  app.add_option("--metrics", at)->check(metrics_address());
  for (const std::string good : {"127.0.0.1:0", "[::1]:8081", "none"}) {
    CHECK_NOTHROW(app.parse("--metrics " + good));
  }
  for (const std::string bad : {"127.0.0.1", "localhost:x", ":1"}) {
    CHECK_THROWS_AS(app.parse("--metrics " + bad), CLI::ValidationError);
  }
}

}  // namespace
}  // namespace headrace::cli

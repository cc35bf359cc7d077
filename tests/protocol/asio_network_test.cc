#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>

#include "protocol/asio_runtime.h"
#include "tests/protocol/link_rules.h"

namespace headrace {
namespace {

TEST_CASE("links over TCP keep the rules of links") {
  AsioRuntime runtime(2);
  AsioNetwork network(runtime);
  LinkRules{network, [&] { return runtime.make_strand(); }, {"127.0.0.1", 0}}.run_all();
}

TEST_CASE("names are resolved, for dialling and for listening") {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  auto strand = runtime.make_strand();
  LinkRules rules{network, {}, {}};
  auto opened = network.listen({"localhost", 0}, {}, strand, [](auto) {});
  REQUIRE(opened);
  auto link = rules.dial((*opened)->endpoint(), strand);
  CHECK(link);
  on(strand, [&] {
    *opened = nullptr;
    if (link) *link = nullptr;
  });
}

TEST_CASE("a name that nobody has is refused by name") {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  auto strand = runtime.make_strand();
  LinkRules rules{network, {}, {}};
  const auto link = rules.dial({"no-such-host.invalid", 7401}, strand);
  REQUIRE_FALSE(link);
  CHECK(link.error().code == Errc::kUnavailable);
  CHECK(link.error().message.find(
            "cannot connect to no-such-host.invalid:7401: cannot resolve the name") == 0);
  const auto listener = network.listen({"no-such-host.invalid", 7401}, {}, strand, [](auto) {});
  REQUIRE_FALSE(listener);
  CHECK(listener.error().message.find(
            "cannot listen on no-such-host.invalid:7401: cannot resolve") == 0);
}

TEST_CASE("an address of another machine cannot be listened on") {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  const auto listener = network.listen({"192.0.2.1", 7401}, {}, runtime.make_strand(), [](auto) {});
  REQUIRE_FALSE(listener);
  CHECK(listener.error().code == Errc::kUnavailable);
  CHECK(listener.error().message.find("cannot listen on 192.0.2.1:7401: ") == 0);
}

TEST_CASE("a dial that nobody answers ends at its deadline") {
  // A listener whose queue is full: the system drops further attempts.
  const int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(door, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(door, 0) == 0);
  REQUIRE(getsockname(door, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  std::vector<int> fillers;
  for (int i = 0; i < 4; ++i) {
    fillers.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)connect(fillers.back(), reinterpret_cast<sockaddr*>(&address), size);
  }
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  LinkRules rules{network, {}, {}};
  const uint16_t port = ntohs(address.sin_port);
  const auto link = rules.dial({"127.0.0.1", port}, runtime.make_strand(), 100ms);
  REQUIRE_FALSE(link);
  CHECK(link.error().code == Errc::kDeadline);
  CHECK(link.error().message ==
        "cannot connect to 127.0.0.1:" + std::to_string(port) + ": no answer within 100 ms");
  for (int fd : fillers) close(fd);
  close(door);
}

TEST_CASE("a port that speaks HTTP is named as such, not as a frame of 1.3 GB") {
  const int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(door, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(door, 1) == 0);
  REQUIRE(getsockname(door, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  auto strand = runtime.make_strand();
  auto link = LinkRules{network, {}, {}}.dial({"127.0.0.1", ntohs(address.sin_port)}, strand);
  REQUIRE(link);
  const int served = accept(door, nullptr, nullptr);
  const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
  REQUIRE(write(served, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()));
  std::promise<std::string> why;
  on(strand, [&] {
    (*link)->start([](const Bytes&) {}, [&](const Status& s) { why.set_value(s.message); });
  });
  CHECK(why.get_future().get().find(" speaks HTTP") != std::string::npos);
  on(strand, [&] { *link = nullptr; });
  close(served);
  close(door);
}

TEST_CASE("IPv6 works where the machine has it") {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  auto strand = runtime.make_strand();
  auto opened = network.listen({"::1", 0}, {}, strand, [](auto) {});
  if (!opened) {
    CHECK(opened.error().message.find("cannot listen on [::1]:0: ") == 0);
    return;
  }
  LinkRules rules{network, {}, {}};
  auto link = rules.dial((*opened)->endpoint(), strand);
  REQUIRE(link);
  CHECK((*link)->peer() == to_string((*opened)->endpoint()));
  on(strand, [&] {
    *opened = nullptr;
    *link = nullptr;
  });
}

TEST_CASE("the end of the runtime drops dials and listeners without a call") {
  std::atomic<int> called = 0;
  std::shared_ptr<Strand> strand;
  Result<std::unique_ptr<Listener>> opened = error(Errc::kUnavailable, "not yet");
  {
    AsioRuntime runtime(2);
    AsioNetwork network(runtime);
    strand = runtime.make_strand();
    opened = network.listen({"127.0.0.1", 0}, {}, strand, [](auto) {});
    REQUIRE(opened);
    runtime.stop();
    network.dial((*opened)->endpoint(), kHang, {}, strand, [&](auto) { ++called; });
    CHECK_FALSE(network.listen({"127.0.0.1", 0}, {}, strand, [](auto) {}));
  }
  CHECK(called == 0);
  *opened = nullptr;  // after everything else
}

}  // namespace
}  // namespace headrace

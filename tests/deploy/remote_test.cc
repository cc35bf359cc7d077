#include "deploy/cli/remote.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>
#include <thread>

namespace headrace::cli {
namespace {

TEST_CASE("devices are known by the names workers give them") {
  CHECK(parse_device_name("cpu avx2, 4 threads") == NamedDevice{kernels::CpuPath::kAvx2, 4});
  CHECK(parse_device_name("cpu amx, 2 threads") == NamedDevice{kernels::CpuPath::kAmx, 2});
  CHECK(parse_device_name("cpu portable, 1 thread") == NamedDevice{kernels::CpuPath::kPortable, 1});
  for (const char* text : {"", "reference", "cpu", "cpu avx2", "cpu avx2, x threads",
                           "cpu sse9, 2 threads", "cpu avx2, 0 threads"}) {
    CAPTURE(text);
    CHECK(!parse_device_name(text));
  }
  const auto device = kernels::make_cpu_device(kernels::CpuPath::kPortable, 1);
  CHECK(parse_device_name(device->name()) == NamedDevice{kernels::CpuPath::kPortable, 1});
}

TEST_CASE("who takes a connection but is no coordinator is told apart") {
  // Says what a web server says to bytes that are no request, and closes.
  const int door = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(door, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(listen(door, 1) == 0);
  socklen_t size = sizeof at;
  getsockname(door, reinterpret_cast<sockaddr*>(&at), &size);
  std::thread other([door] {
    const int client = accept(door, nullptr, nullptr);
    constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    char some[64];
    if (read(client, some, sizeof some) > 0)
      CHECK(write(client, kAnswer.data(), kAnswer.size()) == ssize_t{kAnswer.size()});
    close(client);
  });
  const auto client = connect_client({"127.0.0.1", ntohs(at.sin_port)});
  other.join();
  close(door);
  REQUIRE(!client);
  CHECK(client.error().message.find("no answer of a coordinator at 127.0.0.1:") == 0);
  CHECK(client.error().message.find("port for clients") != std::string::npos);
}

TEST_CASE("limits of another machine are not known") {
  client::ClusterStatus status;
  status.workers.push_back({});
  status.workers[0].role = "decode";
  status.workers[0].device = "cpu portable, 1 thread";
  CHECK(limits_of(status, {"192.0.2.1", 7400}, "/dev/null/x").read.empty());
  status.workers[0].role = "prefill";
  CHECK(limits_of(status, {"127.0.0.1", 7400}, "/dev/null/x").read.empty());
}

}  // namespace
}  // namespace headrace::cli

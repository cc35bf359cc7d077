#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("what cannot work is said before anything is started") {
  const std::string model = test_model("script/base.gguf");
  CHECK(headrace({"serve", "/no/such/model", "--listen", "127.0.0.1:17440"})
            .one_error("/no/such/model"));
  const Outcome open = headrace({"serve", model, "--listen", "0.0.0.0:17440"});
  CHECK(open.status == 2);
  CHECK(open.one_error("--insecure-mesh"));
  CHECK(headrace({"serve", model, "--listen", "127.0.0.1:0"}).status == 2);
  CHECK(headrace({"serve", model, "--listen", "127.0.0.1:65535"}).status == 2);
  CHECK(headrace({"serve", model, "--listen", "127.0.0.1:17440", "--mesh", "127.0.0.1:17440"})
            .one_error("the same address"));
  CHECK(headrace({"serve", model, "--prefill", "0", "--pd", "always"}).one_error("--prefill 0"));
}

TEST_CASE("a port in use is one line that names it") {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(taken, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(listen(taken, 1) == 0);
  socklen_t size = sizeof at;
  getsockname(taken, reinterpret_cast<sockaddr*>(&at), &size);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const Outcome outcome = headrace(
      {"serve", test_model("script/base.gguf"), "--listen", address, "--mesh", "127.0.0.1:17441"});
  CHECK(outcome.status == 1);
  CHECK(outcome.one_error(address));
  CHECK(outcome.one_error("in use"));
  close(taken);
}

}  // namespace
}  // namespace headrace::cli

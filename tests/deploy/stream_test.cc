// The example of the C++ client library, as a program; what it streams is tested end to end
// (tests/e2e/clients_test.py).
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace headrace::cli {
namespace {

struct Ran {
  int status = -1;
  std::string said;  // both streams
};

Ran stream(const std::string& words) {
  Ran ran;
  std::FILE* out = popen((HEADRACE_STREAM_EXAMPLE " " + words + " 2>&1").c_str(), "r");
  REQUIRE(out != nullptr);
  char piece[512];
  while (const size_t n = std::fread(piece, 1, sizeof piece, out)) ran.said.append(piece, n);
  const int status = pclose(out);
  if (WIFEXITED(status)) ran.status = WEXITSTATUS(status);
  return ran;
}

}  // namespace

TEST_CASE("the example says how it is used, and why it cannot connect") {
  CHECK(stream("").status == 2);
  CHECK(stream("127.0.0.1:9").said.find("usage:") == 0);
  CHECK(stream("127.0.0.1:9 a b").status == 2);
  const Ran nobody = stream("127.0.0.1:9 A");
  CHECK(nobody.status == 1);
  CHECK(nobody.said.find("stream: cannot connect to 127.0.0.1:9: Connection refused") == 0);
  CHECK(stream("nonsense A").status == 1);
}

}  // namespace headrace::cli

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("an address open to the network needs a word") {
  for (const char* option : {"--listen", "--mesh"}) {
    const Outcome outcome = headrace({"coordinator", option, "0.0.0.0:17439"});
    CHECK(outcome.status == 2);
    CHECK(outcome.one_error("--insecure-mesh"));
  }
}

TEST_CASE("an address that is not of this machine is refused in plain words") {
  const Outcome outcome = headrace({"coordinator", "--listen", "192.0.2.1:17439", "--mesh",
                                    "127.0.0.1:0", "--metrics", "none", "--insecure-mesh"});
  CHECK(outcome.status == 1);
  CHECK(
      outcome.err.ends_with("cannot listen on 192.0.2.1:17439: cannot assign requested address\n"));
}

}  // namespace
}  // namespace headrace::cli

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("an address open to the network needs a word") {
  for (const char* option : {"--listen", "--mesh"}) {
    const Outcome outcome = headrace({"coordinator", option, "0.0.0.0:17439"});
    CHECK(outcome.status == 1);
    CHECK(outcome.one_error("--insecure-mesh"));
  }
}

}  // namespace
}  // namespace headrace::cli

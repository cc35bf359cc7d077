#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("version, in words and as JSON") {
  CHECK(headrace({"version"}).out == "headrace " HEADRACE_VERSION "\n");
  CHECK(headrace({"version", "--json"}).json()["version"] == HEADRACE_VERSION);
  CHECK(headrace({"--version"}).out == "headrace " HEADRACE_VERSION "\n");
}

}  // namespace
}  // namespace headrace::cli

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("nobody there is one line") {
  const Outcome outcome = headrace({"status", "--connect", "127.0.0.1:9", "--json"});
  CHECK(outcome.status == 1);
  CHECK(outcome.one_error("127.0.0.1:9"));
  CHECK(outcome.out.empty());
}

}  // namespace
}  // namespace headrace::cli

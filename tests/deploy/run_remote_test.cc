#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("nobody there is one line") {
  const Outcome outcome = headrace({"run", "--connect", "127.0.0.1:9", "A"});
  CHECK(outcome.status == 1);
  CHECK(outcome.one_error("127.0.0.1:9"));
  CHECK(outcome.out.empty());
  CHECK(headrace({"run", "--connect", "nowhere", "A"}).status == 2);
}

}  // namespace
}  // namespace headrace::cli

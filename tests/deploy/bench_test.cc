#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("operations with their share of the limit") {
  const auto json = headrace({"bench", "--seconds", "0.5", "--threads", "1", "--json"}).json();
  CHECK(!json["operations"].empty());
  CHECK(json["limits"].is_object());
  CHECK(headrace({"bench", "--device", "reference"}).status == 2);
}

}  // namespace
}  // namespace headrace::cli

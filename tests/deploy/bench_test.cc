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

TEST_CASE("limits alone, attention alone") {
  const auto limits =
      headrace({"bench", "bandwidth", "--seconds", "0.5", "--mib", "2", "--threads", "1", "--json"})
          .json();
  CHECK(limits["operations"].empty());
  CHECK(limits["limits"]["read"].size() == 2);
  const auto attention =
      headrace({"bench", "attention", "--seconds", "0.5", "--mib", "1", "--threads", "1",
                "--context", "64", "--batch", "2", "--heads", "4", "--kv-heads", "2", "--json"})
          .json();
  REQUIRE(attention["operations"].size() == 2);
  CHECK(attention["operations"][1]["op"] == "attention");
  CHECK(attention["operations"][1]["rows"] == 2);
  CHECK(headrace({"bench", "attention", "--heads", "5", "--kv-heads", "2"}).status == 2);
  CHECK(headrace({"bench", "bandwidth", "decode"}).status == 2);
}

}  // namespace
}  // namespace headrace::cli

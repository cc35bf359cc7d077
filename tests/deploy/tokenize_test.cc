#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("text on stdin becomes ids, byte for byte") {
  const std::string model = test_model("script/base.gguf");
  const auto ids = headrace({"tokenize", model, "--json"}, "AB\n").json()["ids"];
  REQUIRE(ids.size() == 3);
  const Outcome words = headrace({"tokenize", model}, "AB\n");
  CHECK(words.out == std::to_string(ids[0].get<int>()) + "," + std::to_string(ids[1].get<int>()) +
                         "," + std::to_string(ids[2].get<int>()) + "\n");
  CHECK(headrace({"tokenize", model, "--json"}, "").json()["ids"].empty());
  CHECK(headrace({"tokenize", model, "--json"}, std::string("A\0B", 3)).json()["ids"].size() == 3);
}

TEST_CASE("text that is not UTF-8 is refused") {
  const Outcome outcome = headrace({"tokenize", test_model("script/base.gguf")}, "A\xff");
  CHECK(outcome.status == 1);
  CHECK(outcome.one_error("UTF-8"));
}

}  // namespace
}  // namespace headrace::cli

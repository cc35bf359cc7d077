#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("a model file in words and as JSON") {
  const std::string model = test_model("script/base.gguf");
  const auto json = headrace({"inspect", model, "--json"}).json();
  CHECK(json["context"] == 512);
  CHECK(json["architecture"] == "llama");
  CHECK(json["digest"].get<std::string>().size() == 32);
  CHECK(json["ceiling_tokens_per_second"] > 0);
  CHECK(headrace({"inspect", model, "--json", "--device", "reference"})
            .json()["ceiling_tokens_per_second"]
            .is_null());
  const Outcome words = headrace({"inspect", model});
  CHECK(words.status == 0);
  CHECK(words.out.find("512 tokens") != std::string::npos);
}

TEST_CASE("what is no model is one line") {
  const Outcome outcome = headrace({"inspect", test_model("bad/magic.gguf")});
  CHECK(outcome.status == 1);
  CHECK(outcome.one_error("magic.gguf"));
  CHECK(outcome.out.empty());
}

}  // namespace
}  // namespace headrace::cli

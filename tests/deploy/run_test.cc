#include "deploy/cli/run.h"

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

const std::string kModel = test_model("script/base.gguf");

TEST_CASE("the prompt is an argument, ids, or stdin byte for byte") {
  const std::string rest = "BCDEFGHIJKLMNOPQRSTUVWXYZ";
  CHECK(headrace({"run", kModel, "A"}).out == rest + "\n");
  CHECK(headrace({"run", kModel}, "A").out == rest + "\n");
  const auto json = headrace({"run", kModel, "--json", "A"}).json();
  CHECK(json["text"] == rest);
  CHECK(json["finish"] == "stop");
  CHECK(json["usage"]["prompt_tokens"] == 1);
  CHECK(json["usage"]["completion_tokens"] == json["ids"].size());
  CHECK(json["usage"].contains("cached_tokens"));
  CHECK(json["timing"]["total"] >= json["timing"]["first_token"]);
  CHECK(!json.contains("kv_digest"));
}

TEST_CASE("what excludes each other is wrong usage") {
  CHECK(headrace({"run"}).one_error("which model?"));
  CHECK(headrace({"run", kModel, "A", "B"}).one_error("more than one prompt"));
  CHECK(headrace({"run", kModel, "A", "--prompt-ids", "1"}).one_error("not both"));
  CHECK(headrace({"run", kModel, "--prompt-ids", "1", "--chat"}).one_error("--prompt-ids"));
  CHECK(headrace({"run", kModel, "--special", "--chat", "A"}).one_error("--special"));
  for (const char* ids : {"", "1,", "x", "1,,2", "-1"}) {
    CAPTURE(ids);
    CHECK(headrace({"run", kModel, "--prompt-ids", ids}).status == 2);
  }
}

TEST_CASE("numbers are checked before anything is loaded") {
  for (const char* option : {"--temperature", "--top-p", "--min-p"}) {
    for (const char* value : {"nan", "inf", "-1", "1e400", "x", "101"}) {
      CAPTURE(option);
      CAPTURE(value);
      const Outcome outcome = headrace({"run", "/no/such/model", option, value, "A"});
      CHECK(outcome.status == 2);
      CHECK(outcome.one_error(option));
    }
  }
  CHECK(headrace({"run", kModel, "--max-tokens", "0", "A"}).status == 2);
  CHECK(headrace({"run", kModel, "--seed", "-1", "A"}).status == 2);
  CHECK(headrace({"run", kModel, "--top-k", "-1", "A"}).status == 0);
}

}  // namespace
}  // namespace headrace::cli

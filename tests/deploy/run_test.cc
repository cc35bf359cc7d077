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

TEST_CASE("a request by name, and what it takes to resume one") {
  const std::string id(32, 'a');
  CHECK(headrace({"run", kModel, "--request-id", "xyz", "A"}).one_error("32 hexadecimal"));
  CHECK(headrace({"run", kModel, "--resume", id}).one_error("--connect"));
  CHECK(headrace({"run", "--connect", "127.0.0.1:9", "--resume", id, "A"}).one_error("no prompt"));
  CHECK(headrace({"run", kModel, "--from", "3", "A"}).status == 2);
  const auto json = headrace({"run", kModel, "--request-id", id, "--json", "A"}).json();
  CHECK(json["request_id"] == id);
  CHECK(headrace({"run", "", "A"}).one_error("is empty"));
}

TEST_CASE("options that would do nothing are refused by name, those of the environment ignored") {
  const std::vector<std::string> there{"run", "--connect", "127.0.0.1:9"};
  const auto ask = [&](std::vector<std::string> more) {
    more.insert(more.begin(), there.begin(), there.end());
    return headrace(more);
  };
  for (const char* option : {"--device=cpu", "--threads=2", "--kv-block-tokens=32"}) {
    const std::string word = option;
    const Outcome refused = ask({option, "A"});
    CAPTURE(word);
    CHECK(refused.status == 2);
    CHECK(refused.one_error(word.substr(0, word.find('=')) + " does nothing with --connect"));
  }
  CHECK(ask({"--state-dir", HEADRACE_TEST_STATE, "A"}).one_error("cannot connect"));
  setenv("HEADRACE_THREADS", "2", 1);
  CHECK(ask({"A"}).one_error("cannot connect"));
  unsetenv("HEADRACE_THREADS");
  for (const char* option : {"--temperature=1", "--max-tokens=3", "--stop=x", "--chat", "--seed=1",
                             "--kv-digest", "--cache-salt=x"}) {
    const std::string word = option;
    const Outcome refused = ask({"--resume", std::string(32, 'a'), option});
    CAPTURE(word);
    CHECK(refused.status == 2);
    CHECK(refused.one_error(word.substr(0, word.find('=')) + " does nothing with --resume"));
  }
}

TEST_CASE(
    "stops that are none are wrong usage, what only the model can tell has the option's name") {
  CHECK(headrace({"run", kModel, "A", "--stop", ""}).one_error("--stop: takes a text"));
  CHECK(headrace({"run", kModel, "A", "--stop", ""}).status == 2);
  CHECK(headrace({"run", kModel, "A", "--stop", std::string(257, 'x')}).status == 2);
  const Outcome token = headrace({"run", kModel, "A", "--stop-token", "999999"});
  CHECK(token.status == 1);
  CHECK(token.one_error("--stop-token: id 999999"));
  CHECK(headrace({"run", kModel, "A", "--logit-bias", "99999=1"}).one_error("--logit-bias names"));
}

TEST_CASE("penalties, bias, stops and alternatives, in this process") {
  const auto text = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"run", kModel, "--json"});
    const auto json = headrace(words).json();
    return json.is_object() ? json["text"].get<std::string>() : std::string("none");
  };
  CHECK(text({"A", "--stop", "GHI"}) == "BCDEF");
  CHECK(text({"A", "--stop", "GHX", "--stop", "GHI", "--include-stop"}) == "BCDEFGHI");
  CHECK(text({"A", "--stop-token", "70"}) == "BCDE");
  CHECK(text({"(", "--max-tokens", "1", "--logit-bias", "49=-100"}) == "2");
  CHECK(text({"(", "--max-tokens", "1", "--logit-bias", "49=-100", "--logit-bias", "52=100"}) ==
        "4");
  const auto twelve = [&](const char* option, const char* value) {
    return text({"1(1(1(", "--max-tokens", "11", option, value});
  };
  CHECK(twelve("--presence-penalty", "0") == "1(1(1(1(1(1");
  CHECK(twelve("--presence-penalty", "2") == "1(2(3(1(1(1");
  CHECK(twelve("--frequency-penalty", "1") == "1(2(1(3(2(1");
  CHECK(twelve("--repetition-penalty", "1.5") == "2(1(1(1(1(1");
  const auto json =
      headrace({"run", kModel, "(", "--max-tokens", "1", "--logprobs", "2", "--json"}).json();
  REQUIRE(json["logprobs"].size() == 1);
  CHECK(json["logprobs"][0]["id"] == 49);
  CHECK(json["logprobs"][0]["top"].size() == 2);
  CHECK(json["logprobs"][0]["logprob"] == json["logprobs"][0]["top"][0]["logprob"]);
  for (const char* wrong :
       {"--presence-penalty=2.1", "--frequency-penalty=-3", "--repetition-penalty=0",
        "--logprobs=21", "--logit-bias=49=101", "--top-p=0", "--top-p=-1", "--stop-token=-1"}) {
    CAPTURE(wrong);
    CHECK(headrace({"run", kModel, "A", wrong}).status == 2);
  }
}

}  // namespace
}  // namespace headrace::cli

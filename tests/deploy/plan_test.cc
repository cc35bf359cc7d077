#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

std::vector<std::string> plan_of(std::vector<std::string> more) {
  more.insert(more.begin(), "plan");
  return more;
}

TEST_CASE("a plan in words and as JSON") {
  const Outcome words = headrace({"plan", "--shape", "8b", "--gpu", "h200"});
  CHECK(words.status == 0);
  CHECK(words.err.empty());
  CHECK(words.out.find("Llama 3.1 8B") != std::string::npos);
  const auto json = headrace({"plan", "--shape", "8b", "--gpu", "h200", "--json"}).json();
  CHECK(json["rows"].size() == 3 * 4 * 8 * 4);
  CHECK(json["rows"][0]["weights"] == "w4");
}

TEST_CASE("a model file: its own weights are the base") {
  const auto json =
      headrace({"plan", test_model("script/base.gguf"), "--gpu", "a100", "--json"}).json();
  CHECK(json["base"]["weights"] == "file");
  CHECK(json["model"]["context"] == 512);
  CHECK(json["rows"][0]["context"] == 512);
  CHECK(json["base"]["context"] == 512);
  CHECK(json["base"]["prompt"].get<int>() + json["base"]["answer"].get<int>() <= 512);
}

TEST_CASE("limits that are given are those of the plan") {
  const auto floor = [](const char* read) {
    return headrace({"plan", "--shape", "8b", "--gpu", "h100", "--read-gbps", read, "--tflops",
                     "1000", "--json"})
        .json()["rows"][0]["floor_seconds"]
        .get<double>();
  };
  CHECK(floor("1000") == doctest::Approx(2 * floor("2000")));
}

TEST_CASE("remedies and links, one by one or in a list") {
  const auto json = headrace({"plan", "--shape", "1b", "--gpu", "h200", "--what-if", "w4,kv=int8",
                              "--what-if", "batch=16", "--link-gbps", "25,200", "--json"})
                        .json();
  CHECK(json["what_if"].size() == 4);
  CHECK(json["hand_off"][0]["link"] == "25 Gb/s");
  CHECK(json["hand_off"].size() == 2 * 4);
}

TEST_CASE("a list takes nothing of what follows it") {
  const Outcome outcome =
      headrace({"plan", "--gpu", "h200", "--what-if", "w4", test_model("script/base.gguf")});
  CHECK(outcome.status == 0);
  CHECK(outcome.out.find("What if") != std::string::npos);
}

TEST_CASE("wrong usage is one line that names the option") {
  const std::vector<std::pair<std::vector<std::string>, const char*>> wrong = {
      {{}, "--gpu"},
      {{"--gpu", "h200"}, "MODEL or a --shape"},
      {{"model.gguf", "--shape", "8b", "--gpu", "h200"}, "MODEL or a --shape"},
      {{"--shape", "8b", "--gpu", "v100"}, "a100, h100, h200 or b200, not 'v100'"},
      {{"--shape", "13b", "--gpu", "h200"}, "1b, 8b or 70b, not '13b'"},
      {{"--shape", "8b", "--gpu", "h200", "--what-if", "faster"}, "not 'faster'"},
      {{"--shape", "8b", "--gpu", "h200", "--what-if", "flops=0x"}, "not 'flops=0x'"},
      {{"--shape", "8b", "--gpu", "h200", "--read-gbps", "0"}, "--read-gbps"},
      {{"--shape", "8b", "--gpu", "h200", "--tflops", "-1"}, "--tflops"},
      {{"--shape", "8b", "--gpu", "h200", "--batch", "0"}, "--batch"},
      {{"--shape", "8b", "--gpu", "h200", "--prompt", "-5"}, "--prompt"},
      {{"--shape", "8b", "--gpu", "h200", "--link-gbps", "0"}, "--link-gbps"},
      {{"--shape", "8b", "--gpu", "h200", "--link-gbps",
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"},
       "at most 16"},
      {{"--shape", "8b", "--gpu", "h200", "--weights", "w2"}, "not 'w2'"},
      {{"--shape", "8b", "--gpu", "h200", "--weights", "file"}, "'file'"},
      {{"--shape", "8b", "--gpu", "h200", "--kv-type", "f32"}, "not 'f32'"},
      {{"--shape", "8b", "--gpu", "h200", "--group", "16"}, "not '16'"},
      {{"--shape", "8b", "--gpu", "h200", "--share", "0"}, "--share"},
      {{"--shape", "8b", "--gpu", "h200", "--context", "200000"}, "131072 tokens"},
      {{"--shape", "8b", "--gpu", "h200", "--prompt", "131072"}, "131072 tokens"},
      {{"--shape", "8b", "--gpu", "h200", "--what-if", "context=200000"}, "131072 tokens"},
  };
  for (const auto& usage : wrong) {
    const std::string part = usage.second;
    CAPTURE(part);
    const Outcome outcome = headrace(plan_of(usage.first));
    CHECK(outcome.status == 2);
    CHECK(outcome.one_error(part));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("what is no model is one line") {
  for (const std::string& path :
       {test_model("bad/magic.gguf"), test_model("no-such-file.gguf"), std::string("/dev/null")}) {
    const Outcome outcome = headrace({"plan", path, "--gpu", "h200"});
    CHECK(outcome.status == 1);
    CHECK(outcome.one_error(path));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("a tiny machine: nothing fits, and that is an answer") {
  const Outcome outcome = headrace({"plan", "--shape", "1b", "--gpu", "a100", "--memory-gb", "1"});
  CHECK(outcome.status == 0);
  CHECK(outcome.out.find("does not fit") != std::string::npos);
}

}  // namespace
}  // namespace headrace::cli

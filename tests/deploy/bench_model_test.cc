#include "deploy/cli/bench_model.h"

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}
Outcome bench(const std::string& what, const std::string& more) {
  auto all = words("bench " + what + " " + test_model("tiny/q8_0.gguf"));
  for (const std::string& word : words("--device cpu --threads 1 " + more)) all.push_back(word);
  return headrace(all);
}

TEST_CASE("decode: a row a batch, with its saturation") {
  const auto json = bench("decode", "--batch 1,3 --prompt 20 --tokens 2 --json").json();
  REQUIRE(json["rows"].size() == 2);
  for (const auto& row : json["rows"]) {
    CHECK(row["prefill_tokens_per_second"] > 0);
    CHECK(row["decode_tokens_per_second"] > 0);
    CHECK(row["saturation"] > 0);
    CHECK(row["read_limit"] > 0);
    CHECK(row["seconds_p10"] <= row["seconds"]);
    CHECK(row["seconds"] <= row["seconds_p90"]);
    CHECK(row["saturation"].get<double>() ==
          doctest::Approx(row["bytes_per_second"].get<double>() / row["read_limit"].get<double>()));
  }
  CHECK(json["rows"][0]["batch"] == 1);
  CHECK(json["rows"][1]["batch"] == 3);
  // Weights are read once whatever the batch, their operations are done for each row.
  CHECK(json["rows"][1]["bytes"] < 2 * json["rows"][0]["bytes"].get<uint64_t>());
  CHECK(json["rows"][1]["flops"] > 2 * json["rows"][0]["flops"].get<uint64_t>());
}

TEST_CASE("a context that is made up needs no prompt") {
  const auto json = bench("decode", "--context 40 --tokens 1 --json").json();
  REQUIRE(json["rows"].size() == 1);
  CHECK(json["rows"][0]["context"] == 40);
  CHECK(json["rows"][0]["prompt"] == 0);
  CHECK(json["rows"][0]["prefill_tokens_per_second"] == 0);
}

TEST_CASE("prefill: a row a prompt") {
  const auto json = bench("prefill", "--prompt 10,30 --rounds 2 --json").json();
  REQUIRE(json["rows"].size() == 2);
  CHECK(json["rows"][1]["prompt"] == 30);
  CHECK(json["rows"][1]["prefill_tokens_per_second"] > 0);
  CHECK(json["rows"][1]["flops"] > 2 * json["rows"][0]["flops"].get<uint64_t>());
}

TEST_CASE("what cannot be is refused in a line") {
  CHECK(bench("decode", "--context 100000 --tokens 1").one_error("of the model's context"));
  CHECK(bench("decode", "--batch 1000 --tokens 1 --prompt 1").one_error("rows of a step"));
  CHECK(bench("decode", "--batch 4 --kv-blocks 2").one_error("KV blocks"));
  CHECK(bench("decode", "--batch 0").status == 2);
  CHECK(bench("decode", "--prompt 1,2").status == 2);
  CHECK(headrace({"bench", "prefill"}).status == 2);
  CHECK(headrace({"bench", "prefill", "/nowhere.gguf"}).one_error("/nowhere.gguf"));
}

}  // namespace
}  // namespace headrace::cli

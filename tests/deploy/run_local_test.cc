#include <doctest/doctest.h>

#include <cstdio>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

const std::string kModel = test_model("script/base.gguf");

TEST_CASE("a prompt too long or empty is refused in one line (H06, H07)") {
  const Outcome empty = headrace({"run", kModel, ""});
  CHECK(empty.status == 1);
  CHECK(empty.one_error("empty"));
  CHECK(empty.out.empty());
  const Outcome from_stdin = headrace({"run", kModel}, "");
  CHECK(from_stdin.status == 1);
  const Outcome longer = headrace({"run", kModel, "--json", std::string(600, 'a')});
  CHECK(longer.status == 1);
  CHECK(longer.one_error("600"));
  CHECK(longer.one_error("512"));
  CHECK(longer.out.empty());
  // The answer ends with the context, and says so.
  const auto json =
      headrace({"run", kModel, "--json", "--max-tokens", "100", std::string(500, 'a')}).json();
  CHECK(json["usage"]["completion_tokens"] == 12);
  CHECK(json["finish"] == "length");
}

TEST_CASE("an answer that did not end by itself says why on stderr, and only there") {
  const Outcome cut = headrace({"run", kModel, "--max-tokens", "3", "A"});
  CHECK(cut.out == "BCD\n");
  CHECK(cut.err.starts_with("headrace: ended at --max-tokens 3\n"));
  const Outcome full = headrace({"run", kModel, std::string(500, 'a')});
  CHECK(full.err.find("prompt and answer have 512 tokens") != std::string::npos);
  CHECK(headrace({"run", kModel, "A"}).err.find("ended") == std::string::npos);
  const Outcome empty = headrace({"run", kModel, "A", "--stop", "B"});
  CHECK(empty.out.empty());
  CHECK(empty.err.find("the answer is empty") != std::string::npos);
}

TEST_CASE("a reader that goes away ends the answer, with --json too") {
  // The reader ends at once; 400 tokens of the script model, after its load, take longer.
  for (const char* words : {"", " --json"}) {
    const std::string script = "exec 5>&1; { " HEADRACE_BINARY " run " + kModel +
                               " a --max-tokens 400" + words +
                               " 2>&5; echo \"rc $?\" >&5; } | true";
    std::FILE* out = popen(("bash -c '" + script + "'").c_str(), "r");
    REQUIRE(out != nullptr);
    std::string said;
    char piece[512];
    while (const size_t n = std::fread(piece, 1, sizeof piece, out)) said.append(piece, n);
    pclose(out);
    CHECK(said ==
          "headrace: cannot write the answer to standard output; the request is cancelled\n"
          "rc 1\n");
  }
}

TEST_CASE("a seed gives the same answer again, other seeds give others") {
  const auto ask = [](int seed) {
    return headrace({"run", kModel, "--json", "--temperature", "1", "--max-tokens", "40", "--seed",
                     std::to_string(seed), "("})
        .json()["ids"];
  };
  const auto first = ask(42);
  REQUIRE(!first.empty());
  CHECK(ask(42) == first);
  bool other = false;
  for (int seed = 0; seed < 12 && !other; ++seed) other = ask(seed) != first;
  CHECK(other);
}

TEST_CASE("every device gives the ids of every other, the CPU paths the same KV bytes") {
  const auto ask = [](const std::string& device) {
    return headrace({"run", kModel, "--json", "--kv-digest", "--device", device, "A"}).json();
  };
  const auto portable = ask("cpu:portable");
  CHECK(portable["kv_digest"].get<std::string>().size() == 32);
  CHECK(ask("auto")["kv_digest"] == portable["kv_digest"]);
  CHECK(ask("cpu")["ids"] == portable["ids"]);
  CHECK(ask("reference")["ids"] == portable["ids"]);
}

TEST_CASE("a model that is none is refused in one line") {
  for (const std::string& path :
       {std::string("/no/such/file"), std::string("/"), test_model("bad/empty.gguf"),
        test_model("bad/text.gguf"), test_model("bad/cut_data.gguf"), test_model("bad/zip.gguf")}) {
    CAPTURE(path);
    const Outcome outcome = headrace({"run", path, "A"});
    CHECK(outcome.status == 1);
    CHECK(outcome.one_error(path));
  }
}

}  // namespace
}  // namespace headrace::cli

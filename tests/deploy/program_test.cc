#include "deploy/cli/program.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("wrong usage is one line and status 2") {
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"nonsense"},
      {"version", "--nonsense"},
      {"version", "extra"},
      {"version", "--js"},  // no abbreviations
      {"run", "m", "--threads", "-1"},
      {"run", "m", "--max-tok", "1"},
      {"status"},  // --connect is required
      {"status", "--connect", "here"},
      {"serve"},
      {"serve", "m", "--decode", "0"},
      {"serve", "m", "--prefill", "1.5"},
      {"serve", "m", "--pd", "perhaps"},
      {"worker", "m", "--join", "127.0.0.1:1", "--role", "boss"},
      {"run", "m", "--kv-block-tokens", "17"},
      {"run", "m", "--device", "abacus"}};
  for (const auto& arguments : wrong) {
    std::string line;
    for (const auto& word : arguments) line += word + " ";
    CAPTURE(line);
    const Outcome outcome = headrace(arguments);
    CHECK(outcome.status == 2);
    CHECK(outcome.one_error("--help' shows what there is"));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("what is wrong in a file of options is said with its name") {
  const std::string file = std::string(HEADRACE_TEST_STATE) + "-options.toml";
  const auto said = [&](const std::string& text, std::vector<std::string> more = {}) {
    std::ofstream(file, std::ios::binary) << text;
    std::vector<std::string> words{"--config", file, "serve", "no-model"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = headrace(words);
    CHECK(outcome.status == 2);
    CHECK(outcome.one_error(""));
    return outcome.err;
  };
  CHECK(said("[serve]\nbanana = 1\n").find(file + ": no option serve.banana;") !=
        std::string::npos);
  CHECK(said("[serve]\nprefill = banana\n").find(file + ": --prefill: ") != std::string::npos);
  CHECK(said("[serve]\nprefill = 1\n", {"--prefill", "x"}).find(file) == std::string::npos);
  std::string garbage;
  for (int i = 1; i < 4096; ++i) garbage += static_cast<char>(i * i % 251);
  const std::string line = said(garbage);
  CHECK(line.find(file) != std::string::npos);
  CHECK(line.size() < 1000);
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c < 0x20 || c == 0x7f) FAIL("byte " << int{c} << " at " << i);
  }
  std::remove(file.c_str());
}

TEST_CASE("what cannot be printed is an error") {
  const std::string program = HEADRACE_BINARY;
  const auto status = [&](const std::string& where) {
    return WEXITSTATUS(std::system((program + " version " + where).c_str()));
  };
  CHECK(status(">/dev/full 2>/dev/null") == 1);
  CHECK(status(">&- 2>/dev/null") == 1);
  CHECK(status(">/dev/null") == 0);
}

TEST_CASE("help goes to stdout and is no error") {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"serve", "-h"}}) {
    const Outcome outcome = headrace(words);
    CHECK(outcome.status == 0);
    CHECK(outcome.out.find("Usage") != std::string::npos);
    CHECK(outcome.err.empty());
  }
}

TEST_CASE("options come from the environment too, and are checked alike") {
  setenv("HEADRACE_JSON", "1", 1);
  CHECK(headrace({"version"}).json()["version"] == HEADRACE_VERSION);
  unsetenv("HEADRACE_JSON");
  setenv("HEADRACE_THREADS", "many", 1);
  CHECK(headrace({"inspect", "m"}).status == 2);
  CHECK(headrace({"bench", "bandwidth"}).err.find("--threads: takes a whole") != std::string::npos);
  unsetenv("HEADRACE_THREADS");
}

TEST_CASE("what the environment holds for another command is not looked at") {
  setenv("HEADRACE_BATCH", "1,8", 1);  // good for `bench decode`, wrong for `plan`
  CHECK(headrace({"version"}).status == 0);
  CHECK(headrace({"plan", "--shape", "1b", "--gpu", "h200"}).status == 2);
  CHECK(headrace({"bench", "decode", "/no/such/model"}).status == 1);
  unsetenv("HEADRACE_BATCH");
}

}  // namespace
}  // namespace headrace::cli

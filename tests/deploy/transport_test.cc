#include "deploy/cli/transport.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>

#include "kernels/cuda_device.h"
#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TransportOptions parsed(const std::string& words) {
  TransportOptions options;
  CLI::App app;
  options.add_to(app);
  app.parse(words);
  return options;
}

TEST_CASE("what was given, and what a child is given of it") {
  const TransportOptions none = parsed("");
  CHECK(none.arguments() == std::vector<std::string>{"--handoff", "auto"});
  CHECK(!none.trust_links);
  const TransportOptions all = parsed("--handoff nccl --nccl-library /x/y.so --trust-links");
  CHECK(all.arguments() == std::vector<std::string>{"--handoff", "nccl", "--nccl-library",
                                                    "/x/y.so", "--trust-links"});
  CHECK_THROWS_AS(parsed("--handoff udp"), CLI::ValidationError);
}

TEST_CASE("a CPU: tcp without a word, unless something was given that it has no use for") {
  const auto silent = TransportOptions().choose("cpu");
  REQUIRE(silent.has_value());
  CHECK(!silent->lanes);
  CHECK(silent->sentence.empty());
  for (const char* word : {"--trust-links", "--nccl-library x.so"}) {
    CAPTURE(word);
    for (const char* way : {"", "--handoff tcp "}) {
      const auto said = parsed(std::string(way) + word).choose("cpu");
      REQUIRE(said.has_value());
      CHECK(said->sentence.starts_with("hand-offs go over tcp: "));
      CHECK(said->sentence.find(std::string(word).substr(0, 10)) != std::string::npos);
    }
  }
  const auto refused = parsed("--handoff nccl").choose("cpu:portable");
  REQUIRE(!refused.has_value());
  CHECK(refused.error().message == "--handoff nccl is for GPUs, and device cpu:portable is none");
}

TEST_CASE("a GPU without the library: tcp and why, or with nccl no start") {
  for (const char* device : {"cuda:0", "cuda:1"}) {
    const auto tcp = parsed("--nccl-library /no/such.so --trust-links").choose(device);
    REQUIRE(tcp.has_value());
    CHECK(!tcp->lanes);
    CHECK(tcp->sentence.starts_with("hand-offs go over tcp: "));
    const auto refused = parsed("--handoff nccl --nccl-library /no/such.so").choose(device);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().message.starts_with("--handoff nccl --nccl-library /no/such.so: "));
    CHECK(refused.error().message.substr(40).find("NCCL") != std::string::npos);
  }
}

TEST_CASE("serve and worker have the options, and refuse before they load anything") {
  for (const char* command : {"serve", "worker"}) {
    CAPTURE(command);
    const std::string help = headrace({command, "--help"}).out;
    for (const char* option : {"--handoff", "--nccl-library", "--trust-links"})
      CHECK(help.find(option) != std::string::npos);
    std::vector<std::string> words{command, "/no/such.gguf", "--device", "cpu"};
    if (words[0] == "worker") words.insert(words.end(), {"--join", "127.0.0.1:9"});
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = words;
      all.insert(all.end(), more.begin(), more.end());
      return headrace(all);
    };
    const Outcome nccl = with({"--handoff", "nccl"});
    CHECK(nccl.status == 1);
    CHECK(nccl.one_error("--handoff nccl is for GPUs, and device cpu is none"));
    const Outcome wrong = with({"--handoff", "rdma"});
    CHECK(wrong.status == 2);
    CHECK(wrong.one_error("takes auto, tcp or nccl, not 'rdma'"));
    CHECK(with({"--trust-links"}).err.find("--trust-links is not used") != std::string::npos);
  }
}

TEST_CASE("a file of options: sections by command, the command line counts before it") {
  const std::string path = "transport_test.toml";
  const auto run = [&](const std::string& text, std::vector<std::string> more) {
    std::ofstream(path) << text;
    std::vector<std::string> words{"--config", path,          "worker",   "/no/such.gguf",
                                   "--join",   "127.0.0.1:9", "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return headrace(words);
  };
  const std::string declared = "[worker]\ntrust-links = true\n";
  CHECK(run(declared, {}).err.find("--trust-links is not used") != std::string::npos);
  CHECK(run("[serve]\ntrust-links = true\n", {}).err.find("trust-links") == std::string::npos);
  CHECK(run("[worker]\nhandoff = \"nccl\"\n", {}).one_error("--handoff nccl is for GPUs"));
  CHECK(run("[worker]\nhandoff = \"nccl\"\n", {"--handoff", "tcp"}).one_error("/no/such.gguf"));
  const Outcome unknown = run("[worker]\ntrust-link = true\n", {});
  CHECK(unknown.status == 2);
  CHECK(unknown.one_error("trust-link"));
  const Outcome wrong = run("[worker]\nhandoff = rdma\n", {});
  CHECK(wrong.status == 2);
  CHECK(wrong.one_error("rdma"));
  std::remove(path.c_str());
  const Outcome gone = headrace({"--config", path, "version"});
  CHECK(gone.status == 2);
  CHECK(gone.one_error(path));
}

}  // namespace
}  // namespace headrace::cli

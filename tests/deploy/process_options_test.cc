#include "deploy/cli/process_options.h"

#include <doctest/doctest.h>

#include "deploy/cli/status_port.h"
#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("the same words for serve, coordinator and worker") {
  for (const char* command : {"serve", "coordinator", "worker"}) {
    CAPTURE(command);
    const std::string help = headrace({command, "--help"}).out;
    for (const char* option : {"--drain-timeout", "--metrics", "--insecure-mesh", "--json"}) {
      CAPTURE(option);
      CHECK(help.find(option) != std::string::npos);
    }
    CHECK(help.find("Seconds that running answers get") != std::string::npos);
  }
}

TEST_CASE("what was given, and what a child is given of it") {
  ProcessOptions process;
  CLI::App app;
  process.add_to(app, "127.0.0.1:0", "port 0: any");
  bool cache = false;
  add_prefix_cache(app, cache);
  app.parse("--drain-timeout 7 --prefix-cache on");
  CHECK(process.drain() == std::chrono::seconds(7));
  CHECK(process.metrics == "127.0.0.1:0");
  CHECK(!process.metrics_given());
  CHECK(cache);
  CHECK(process.arguments() == std::vector<std::string>{"--drain-timeout", "7"});
  app.parse("--insecure-mesh --metrics 127.0.0.1:1 --prefix-cache off");
  CHECK(process.metrics_given());
  CHECK(process.arguments().back() == "--insecure-mesh");
  CHECK(!cache);
  CHECK(prefix_cache_arguments(cache) == std::vector<std::string>{"--prefix-cache", "off"});
}

TEST_CASE("metrics open to the network need a word") {
  ProcessOptions process;
  process.metrics = "0.0.0.0:9";
  CHECK(!process.check_metrics_exposure().ok());
  process.metrics = kNoMetrics;
  CHECK(process.check_metrics_exposure().ok());
  for (const char* command : {"coordinator", "serve"}) {
    std::vector<std::string> words{command, "--metrics", "0.0.0.0:17438"};
    if (words[0] == "serve") words.push_back(test_model("script/base.gguf"));
    CHECK(headrace(words).one_error("the metrics port on 0.0.0.0:17438"));
  }
}

}  // namespace
}  // namespace headrace::cli

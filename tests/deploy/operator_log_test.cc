#include "deploy/cli/operator_log.h"

#include <doctest/doctest.h>

#include <vector>

namespace headrace::cli {
using coordinator::Event;

TEST_CASE("times are UTC with milliseconds") {
  CHECK(utc_time(0) == "1970-01-01T00:00:00.000Z");
  CHECK(utc_time(951'782'400'007) == "2000-02-29T00:00:00.007Z");
}

TEST_CASE("each line has its time in front") {
  std::vector<std::string> said;
  OperatorLog log(false, [&](std::string_view line) { said.emplace_back(line); });
  log.write(Event::kJoined, "worker a joined");
  REQUIRE(said.size() == 1);
  CHECK(said[0].substr(23) == "Z worker a joined");
}

TEST_CASE("under a supervisor: nothing that it says itself, nothing before the first ready") {
  std::vector<std::string> said;
  OperatorLog log(true, [&](std::string_view line) { said.emplace_back(line.substr(25)); });
  log.write(Event::kCluster, "the cluster is not ready: no worker has joined");
  log.write(Event::kJoined, "worker a joined");
  CHECK(said.empty());
  log.write(Event::kRefused, "a worker was refused");  // it will not become ready by itself
  CHECK(said == std::vector<std::string>{"a worker was refused"});
  log.write(Event::kCluster, coordinator::kClusterReady);
  CHECK(said.size() == 1);
  log.write(Event::kLost, "worker a was lost");
  log.write(Event::kCluster, "the cluster is not ready: x");
  log.write(Event::kJoined, "worker a joined");
  log.write(Event::kCluster, coordinator::kClusterReady);
  CHECK(said.size() == 4);
  CHECK(said.back() == coordinator::kClusterReady);
}

}  // namespace headrace::cli

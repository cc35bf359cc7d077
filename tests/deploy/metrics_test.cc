#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("metrics list names every metric with type, unit and meaning") {
  const auto rows = headrace({"metrics", "list", "--json"}).json()["metrics"];
  REQUIRE(rows.size() > 60);
  std::set<std::string> names;
  for (const auto& row : rows) {
    CAPTURE(row.dump());
    CHECK(names.insert(row["name"]).second);
    const std::string type = row["type"];
    CHECK((type == "counter" || type == "gauge" || type == "histogram"));
    for (const char* key : {"unit", "help", "component"}) CHECK_FALSE(row[key].empty());
  }
  for (const char* name :
       {"headrace_bandwidth_saturation_ratio", "headrace_wall", "headrace_kv_blocks",
        "headrace_time_to_first_token_seconds", "headrace_build_info", "process_open_fds"}) {
    CHECK(names.contains(name));
  }
  std::istringstream lines(headrace({"metrics", "list"}).out);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CHECK(names.contains(line.substr(0, line.find(' '))));
  }
  CHECK(count == names.size());
}

TEST_CASE("metrics alone is wrong usage") {
  const Outcome outcome = headrace({"metrics"});
  CHECK(outcome.status == 2);
  CHECK(outcome.out.empty());
}

}  // namespace
}  // namespace headrace::cli

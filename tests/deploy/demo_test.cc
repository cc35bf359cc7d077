#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("the demo of the memory wall, small") {
  const Outcome shown = headrace({"demo", "wall", "--small", "--seconds", "1", "--threads", "1"});
  CHECK(shown.status == 0);
  CHECK(shown.out.find("The walls of this machine") != std::string::npos);
  const auto json =
      headrace({"demo", "wall", "--small", "--seconds", "1", "--threads", "1", "--json"}).json();
  REQUIRE(json["formats"].size() == 3);
  CHECK(json["formats"][0]["weights"] == "bf16");
  CHECK(json["formats"][1]["weights"] == "w8");
  CHECK(json["formats"][2]["weights"] == "w4");
  CHECK(json["batches"][2]["batch"] == 16);
}

TEST_CASE("what the demo does not take") {
  CHECK(headrace({"demo"}).status == 2);
  const Outcome reference = headrace({"demo", "wall", "--device", "reference"});
  CHECK(reference.status == 2);
  CHECK(reference.one_error("CPU path"));
  CHECK(headrace({"demo", "wall", "--device", "cuda:0"}).one_error("CPU path"));
  CHECK(headrace({"demo", "wall", "--seconds", "0"}).status == 2);
}

}  // namespace
}  // namespace headrace::cli

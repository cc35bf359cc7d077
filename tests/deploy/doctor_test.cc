#include <doctest/doctest.h>

#include "kernels/cuda_device.h"
#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("the machine in words and as JSON") {
  const auto json = headrace({"doctor", "--json", "--threads", "1"}).json();
  CHECK(json["ok"] == true);
  CHECK(json["limits"]["threads"] == 1);
  REQUIRE(!json["limits"]["read"].empty());
  for (const auto& point : json["limits"]["read"]) CHECK(point["bytes_per_second"] > 0);
  CHECK(json["findings"].size() >= 4);
  // What was measured is kept: the second time it is the same to the bit.
  CHECK(headrace({"doctor", "--json", "--threads", "1"}).json()["limits"] == json["limits"]);
  const auto& gpu = json["findings"].back();
  CHECK(gpu["what"] == "gpu");
  if (!kernels::cuda_is_built()) {
    CHECK(json["gpus"].empty());
    CHECK(gpu["text"].get<std::string>().find("without CUDA") != std::string::npos);
  }
  const Outcome words = headrace({"doctor", "--threads", "1"});
  CHECK(words.status == 0);
  CHECK(words.out.find("GB/s") != std::string::npos);
}

TEST_CASE("limits that cannot be kept are a warning, with --strict a failure") {
  const std::vector<std::string> ask{"doctor", "--threads", "1", "--state-dir", "/dev/null/x"};
  const Outcome outcome = headrace(ask);
  CHECK(outcome.status == 0);
  CHECK(outcome.out.find("warning  state folder") != std::string::npos);
  auto strict = ask;
  strict.push_back("--strict");
  CHECK(headrace(strict).status == 1);
}

}  // namespace
}  // namespace headrace::cli

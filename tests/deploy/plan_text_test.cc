#include <doctest/doctest.h>

#include <sstream>

#include "deploy/cli/plan_report.h"

namespace headrace::cli {
namespace {

PlanRequest request(const char* shape) {
  PlanRequest r;
  r.model = *plan_shape(shape);
  r.gpu = "h200";
  r.base.machine = plan_machine(*plan_gpu("h200"), std::nullopt, std::nullopt);
  r.base.format.weights = PlanWeights::kBf16;
  r.links = plan_links(r.base.machine, {});
  return r;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("tables of a model that fits") {
  const std::string text = plan_text(request("8b"));
  for (const char* part : {"Llama 3.1 8B", "4.3 TB/s (measured)", "not verified on hardware",
                           "\nDecode with bf16", "prefill : decode", "Hand-off", "NVLink", "128K"})
    CHECK(has(text, part));
  CHECK(!has(text, "What if"));
  CHECK(!has(text, "nan"));
  CHECK(!has(text, "inf"));
}

TEST_CASE("no line is wider than a wide terminal") {
  PlanRequest r = request("70b");
  r.base.format.weights = PlanWeights::kW4;
  r.base.batch = 128;
  r.remedies = {"flops=2x", "bandwidth=2x", "w8", "kv=int8", "batch=16"};
  std::istringstream lines(plan_text(r));
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 140);
    CHECK((line.empty() || line.back() != ' '));
  }
}

TEST_CASE("what does not fit is said, and no speed of it is shown") {
  const std::string text = plan_text(request("70b"));
  CHECK(has(text, "bf16 weights, f16/bf16 KV: does not fit, 141 GB of 139 GB"));
  CHECK(!has(text, "Decode with"));
  CHECK(!has(text, "Hand-off"));
  CHECK(has(text, "Every format"));
}

TEST_CASE("before and after stand beside each other") {
  PlanRequest r = request("8b");
  r.remedies = {"w4", "batch=16"};
  const std::string text = plan_text(r);
  CHECK(has(text, "What if, from batch 1"));
  CHECK(has(text, "15.3 GB -> 4.49 GB"));
  CHECK(has(text, "\n  all "));
}

}  // namespace
}  // namespace headrace::cli

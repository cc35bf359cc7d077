#include <doctest/doctest.h>

#include <set>

#include "deploy/cli/plan_report.h"

namespace headrace::cli {
namespace {

PlanRequest request() {
  PlanRequest r;
  r.model = *plan_shape("8b");
  r.gpu = "h200";
  r.base.machine = plan_machine(*plan_gpu("h200"), std::nullopt, std::nullopt);
  r.base.format.weights = PlanWeights::kBf16;
  r.links = plan_links(r.base.machine, {});
  r.remedies = {"w4", "kv=int8"};
  return r;
}

TEST_CASE("a row for each format, batch and context") {
  const auto json = plan_json(request());
  REQUIRE(json["rows"].size() == 3 * 4 * 8 * 4);
  std::set<std::string> seen;
  for (const auto& row : json["rows"]) {
    for (const char* key : {"batch", "context", "weights", "kv", "step_bytes", "floor_seconds",
                            "tokens_per_second", "wall"})
      REQUIRE(row.contains(key));
    seen.insert(row["weights"].get<std::string>() + row["kv"].get<std::string>() +
                row["batch"].dump() + "x" + row["context"].dump());
    const double floor = row["floor_seconds"];
    CHECK(row["tokens_per_second"].get<double>() * floor ==
          doctest::Approx(row["batch"].get<double>()));
    CHECK(row["step_bytes"].get<double>() <= floor * 4.3e12 * 1.000001);
    CHECK(row["predicted_seconds"].get<double>() > floor);
    CHECK(row["step_bytes"] == row["weight_bytes"].get<uint64_t>() +
                                   row["kv_bytes"].get<uint64_t>() +
                                   row["activation_bytes"].get<uint64_t>());
    CHECK((row["wall"] == "kv_capacity") == !row["fits"].get<bool>());
  }
  CHECK(seen.size() == json["rows"].size());
}

TEST_CASE("memory, ratios, links and remedies beside them") {
  const auto json = plan_json(request());
  CHECK(json["model"]["name"] == "Llama 3.1 8B");
  CHECK(json["gpu"]["read_source"] == "measured");
  CHECK(json["assumptions"]["verified_on_hardware"] == false);
  REQUIRE(json["memory"].size() == 3 * 4);
  const auto& memory = json["memory"][0];
  CHECK(memory["weights"] == "w4");
  CHECK(memory["fits"] == true);
  CHECK(memory["compute_bound_batch"].is_number());
  CHECK(memory["compute_bound_batch_at"]["32768"].is_null());
  CHECK(memory["sequences"]["512"].get<uint64_t>() >
        60 * memory["sequences"]["32768"].get<uint64_t>());
  CHECK(json["ratios"].size() == 8);
  REQUIRE(json["hand_off"].size() == 4 * 4);
  const auto& slow = json["hand_off"][3];
  CHECK(slow["link"] == "10 Gb/s");
  CHECK(slow["loses"] == true);
  CHECK(slow["wire_seconds"] > slow["prefill_seconds"]);
  REQUIRE(json["what_if"].size() == 3);
  CHECK(json["what_if"][0]["remedy"] == "w4");
  CHECK(json["what_if"][0]["before"]["step_bytes"] > json["what_if"][0]["after"]["step_bytes"]);
  CHECK(json["what_if"][0]["gain"] > 3);
}

}  // namespace
}  // namespace headrace::cli

#include "deploy/cli/plan_report.h"

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

PlanRequest request(PlanModel model) {
  PlanRequest r;
  r.model = std::move(model);
  r.gpu = "h200";
  r.base.machine = plan_machine(*plan_gpu("h200"), std::nullopt, std::nullopt);
  r.links = plan_links(r.base.machine, {});
  return r;
}

TEST_CASE("links: those given, else NVLink and three networks") {
  const PlanMachine machine = request(*plan_shape("8b")).base.machine;
  const auto known = plan_links(machine, {});
  REQUIRE(known.size() == 4);
  CHECK(known[0].name == "NVLink");
  CHECK(known[0].rate == 450e9);
  CHECK(known[1].name == "400 Gb/s");
  CHECK(known[1].rate == 50e9);
  const auto given = plan_links(machine, {25});
  REQUIRE(given.size() == 1);
  CHECK(given[0].name == "25 Gb/s");
  CHECK(given[0].rate == doctest::Approx(3.125e9));
}

TEST_CASE("rows: each batch and context once, with what is its wall") {
  PlanRequest r = request(*plan_shape("8b"));
  const auto rows = plan_rows(r, r.with(PlanWeights::kW4, kernels::KvType::kF16));
  REQUIRE(rows.size() == 8 * 4);
  for (const PlanRow& row : rows) {
    const PlanTime step = plan_decode(r.model, row.at);
    CHECK(row.step.floor == step.floor);
    CHECK(row.per_second() == row.at.batch / step.floor);
    CHECK(row.fits == plan_room(r.model, row.at).holds(row.at.batch, row.at.context));
    CHECK(row.wall == (row.fits ? step.wall : Wall::kKvCapacity));
  }
  CHECK(rows.front().fits);
  CHECK(rows.back().wall == Wall::kKvCapacity);  // 128 x 32K: 550 GB
}

TEST_CASE("a model's own context bounds contexts and prompts") {
  PlanModel m = *plan_shape("8b");
  CHECK(request(m).contexts() == std::vector<int32_t>{512, 2048, 8192, 32'768});
  CHECK(request(m).prompts().back() == 131'072);
  m.context = 4096;
  CHECK(request(m).contexts() == std::vector<int32_t>{512, 2048});
  CHECK(request(m).prompts() == std::vector<int32_t>{2048});
  m.context = 100;
  CHECK(request(m).contexts() == std::vector<int32_t>{100});
  CHECK(request(m).prompts() == std::vector<int32_t>{100});
}

TEST_CASE("a file's own weights come first") {
  CHECK(request(*plan_shape("1b")).weights().front() == PlanWeights::kW4);
  const auto file = plan_model_of(test_model("script/base.gguf"));
  REQUIRE(file);
  CHECK(request(*file).weights().front() == PlanWeights::kFile);
  CHECK(request(*file).weights().size() == 4);
}

TEST_CASE("several remedies: each alone, then all") {
  PlanRequest r = request(*plan_shape("8b"));
  r.base.format.weights = PlanWeights::kBf16;
  r.remedies = {"w4", "batch=8"};
  const auto all = plan_remedies(r);
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "w4");
  CHECK(all[2].name == "all");
  CHECK(all[0].after.step.weight_bytes == all[2].after.step.weight_bytes - 7 * 4096 * 9 / 16);
  CHECK(all[2].after.per_second > all[0].after.per_second);
  CHECK(all[2].after.per_second > all[1].after.per_second);
  r.remedies = {"w4"};
  CHECK(plan_remedies(r).size() == 1);
  r.remedies.clear();
  CHECK(plan_remedies(r).empty());
}

}  // namespace
}  // namespace headrace::cli

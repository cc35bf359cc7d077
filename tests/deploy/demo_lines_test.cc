#include "deploy/cli/demo_lines.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

const DemoShape kShape{.layers = 2,
                       .dim = 64,
                       .ffn = 96,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 16,
                       .vocab = 128,
                       .context = 256};

TEST_CASE("lines of an engine: bytes, and predictions of the model of time") {
  const DemoOptions options{.device = "cpu:portable", .threads = 1, .seconds = 1};
  const auto engine = make_demo_engine(kShape, options.device, 1, demo_blocks(4, 32));
  REQUIRE_MESSAGE(engine, engine.error().message);
  MachineLimits limits;
  limits.int8_ops_per_second = 1e9;
  limits.f32_flops_per_second = 2e9;
  DemoLines lines(options, kShape, limits, **engine);
  std::vector<DemoRow> rows{lines.decode(1, 32), lines.decode(4, 32), lines.prefill(64)};
  lines.judge(rows);
  CHECK(rows[0].weight_bytes() == rows[1].weight_bytes());
  CHECK(rows[1].looked_up == 4 * rows[0].looked_up);
  CHECK(rows[2].prompt <= 64);
  TimeModel model{limits, (*engine)->card().cost, {}};
  model.limits.read = {{1, rows[0].read_limit}};
  for (const DemoRow& row : rows) {
    CHECK(row.weights == "w4");
    CHECK(row.layers == 2);
    CHECK(row.runs >= 1);
    CHECK(row.seconds > 0);
    CHECK(row.low <= row.seconds);
    CHECK(row.seconds <= row.high);
    CHECK(row.read_limit == rows[0].read_limit);
    CHECK(row.read_limit > 0);
    const Duration predicted =
        row.prompt > 0 ? predict_prefill(model, row.prompt, 0)
                       : predict_decode_step(model, row.batch, uint64_t{row.batch} * row.context);
    CHECK(row.predicted == doctest::Approx(std::chrono::duration<double>(predicted).count()));
  }
}

}  // namespace
}  // namespace headrace::cli

#include "worker/engine_bench.h"

#include <doctest/doctest.h>

#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

uint64_t runs_of(const BenchRun& run, const std::string& op) {
  for (const auto& a : run.accounts)
    if (op == a.op) return a.runs;
  return 0;
}

struct Rig {
  std::unique_ptr<ModelEngine> engine;
  Rig() {
    EngineOptions options;
    options.blocks = 12;
    options.block_tokens = 16;
    options.rows_max = 10;
    engine = make_engine(open_model(test_model("tiny/q8_0.gguf")),
                         kernels::make_cpu_device(kernels::best_cpu_path(), 1), options);
  }
};

TEST_CASE("a bench's steps are what they say: rows, chunks, bytes") {
  Rig rig;
  const ModelCard& card = rig.engine->card();
  EngineBench bench(*rig.engine, 3, 40);
  CHECK(EngineBench::blocks_for(card, 3, 40) == 9);
  // 25 tokens of each of three sequences in steps of 10, 10 and 5 rows.
  const BenchRun prompt = bench.prefill(25);
  CHECK(runs_of(prompt, "attention") == 9 * card.layers);
  CHECK(prompt.seconds >= prompt.inside());
  CHECK(bench.position() == 25);
  const BenchRun step = bench.decode();
  CHECK(runs_of(step, "attention") == card.layers);
  CHECK(step.cost().weight_bytes >= card.cost.weight_bytes);
  // Each row reads its 26 tokens, and writes its own.
  CHECK(step.cost().kv_bytes >= 3 * 26 * card.cost.kv_token_bytes);
  CHECK(step.cost().kv_bytes <= 3 * 40 * card.cost.kv_token_bytes);
  CHECK(bench.position() == 26);
  const BenchRun both = prompt + step;
  CHECK(both.seconds == doctest::Approx(prompt.seconds + step.seconds));
  CHECK(runs_of(both, "attention") == 10 * card.layers);
  CHECK(both.cost().flops == prompt.cost().flops + step.cost().flops);
}

TEST_CASE("a context made up costs the same step as a computed one") {
  Rig rig;
  EngineBench bench(*rig.engine, 2, 40);
  bench.prefill(30);
  const auto computed = bench.decode().cost();
  bench.clear();
  CHECK(bench.position() == 0);
  bench.fill(30);
  CHECK(bench.decode().cost() == computed);
  // What was filled in are numbers.
  const auto bytes = rig.engine->read_block(BlockId{0}, 0, 2);
  uint16_t half;
  std::memcpy(&half, bytes.data(), 2);
  CHECK((half & 0x7c00) == 0x3800);
}

}  // namespace
}  // namespace headrace::worker

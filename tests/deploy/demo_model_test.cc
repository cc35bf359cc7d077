#include "deploy/cli/demo_model.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "worker/engine_bench.h"
#include "worker/model_file.h"

namespace headrace::cli {
namespace {

DemoShape tiny(kernels::SourceType type) {
  return {.layers = 2,
          .dim = 64,
          .ffn = 96,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .vocab = 128,
          .context = 128,
          .type = type};
}

constexpr kernels::SourceType kTypes[] = {kernels::SourceType::kQ4_0, kernels::SourceType::kQ8_0,
                                          kernels::SourceType::kBf16};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("made-up models are whole files of the shape asked for, the same each time") {
  for (const auto type : kTypes) {
    const DemoShape shape = tiny(type);
    auto model = DemoModel::make(shape);
    REQUIRE(model);
    const auto file = worker::ModelFile::open(model->path());
    REQUIRE_MESSAGE(file, file.error().message);
    const worker::LlamaConfig& config = (*file)->config();
    CHECK(config.layers == 2);
    CHECK(config.ffn == 96);
    CHECK(config.kv_heads == 2);
    CHECK(config.tied);
    CHECK((*file)->known_tokens() == 128);
    uint64_t weights = 0, bytes = 0;
    for (const auto& t : (*file)->gguf().tensors()) {
      if (t.rows() == 1) continue;
      CHECK(t.type == type);
      weights += t.rows() * t.cols();
      bytes += t.bytes;
    }
    CHECK(weights == shape.weights());
    CHECK(bytes == shape.matrix_bytes());
    const std::string all = contents(model->path());
    CHECK(all.size() == model->bytes());
    auto again = DemoModel::make(shape);
    REQUIRE(again);
    CHECK(contents(again->path()) == all);
    model->empty();
    CHECK(contents(model->path()).empty());
  }
}

TEST_CASE("sizes of the formats, by hand") {
  // Embedding, and of each layer q and out, k and v, gate, up and down.
  const uint64_t weights = 128 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64);
  CHECK(tiny(kernels::SourceType::kBf16).weights() == weights);
  CHECK(tiny(kernels::SourceType::kBf16).matrix_bytes() == weights * 2);
  CHECK(tiny(kernels::SourceType::kQ8_0).matrix_bytes() == weights / 32 * 34);
  CHECK(tiny(kernels::SourceType::kQ4_0).matrix_bytes() == weights / 32 * 18);
}

TEST_CASE("their logits are numbers that differ") {
  for (const auto type : kTypes) {
    auto model = DemoModel::make(tiny(type));
    REQUIRE(model);
    const auto file = worker::ModelFile::open(model->path());
    REQUIRE(file);
    auto engine = worker::ModelEngine::create(*file, kernels::make_reference_device(1),
                                              {.blocks = 4, .keep_logits = true});
    REQUIRE(engine);
    worker::EngineBench(**engine, 1, 32).prefill(32);
    const auto& logits = (*engine)->last_logits();
    REQUIRE(logits.size() == 1);
    REQUIRE(logits[0].size() == 128);
    double squares = 0;
    for (const float v : logits[0]) squares += double{v} * v;
    // Weights of variance 1/dim over an input of size 1: about 1.
    CHECK(std::sqrt(squares / 128) > 0.3);
    CHECK(std::sqrt(squares / 128) < 3);
    CHECK(logits[0][0] != logits[0][1]);
  }
}

TEST_CASE("an engine of them, or why not") {
  const auto engine = make_demo_engine(tiny(kernels::SourceType::kQ4_0), "cpu:portable", 1, 4);
  REQUIRE_MESSAGE(engine, engine.error().message);
  CHECK((*engine)->blocks() == 4);
  CHECK((*engine)->card().cost.kv_token_bytes == 2 * 2 * 2 * 16 * 2);
  DemoShape huge;
  huge.ffn = 1u << 30;
  const auto refused = make_demo_engine(huge, "cpu:portable", 1, 4);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::kOverloaded);
  CHECK(refused.error().message.find("of memory") != std::string::npos);
}

}  // namespace
}  // namespace headrace::cli

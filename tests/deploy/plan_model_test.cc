#include "deploy/cli/plan_model.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string_view>

#include "kernels/cost.h"
#include "tests/deploy/headrace.h"
#include "worker/model_file.h"

namespace headrace::cli {
namespace {

constexpr PlanStep kOne{.batch = 1, .context = 1, .logits = 1};

// Weights that a step reads, by the geometry of the published models; and their norms, 4 bytes.
struct Geometry {
  uint64_t layers, dim, ffn, q, kv, vocab;
  uint64_t layer() const { return dim * (q + 2 * kv) + q * dim + 3 * dim * ffn; }
  uint64_t read() const { return layers * layer() + vocab * dim; }
  uint64_t norms() const { return (2 * layers + 1) * dim * 4; }
};
constexpr Geometry k1b{16, 2048, 8192, 2048, 512, 128'256};
constexpr Geometry k8b{32, 4096, 14'336, 4096, 1024, 128'256};
constexpr Geometry k70b{80, 8192, 28'672, 8192, 1024, 128'256};

kernels::Cost sum(const std::vector<PlanOp>& ops) {
  kernels::Cost all;
  for (const PlanOp& op : ops)
    for (int32_t i = 0; i < op.times; ++i) all += op.cost;
  return all;
}

kernels::Cost step_cost(const PlanModel& m, const PlanFormat& format, const PlanStep& step) {
  return sum(plan_ops(m, format, step));
}

TEST_CASE("a step reads each weight of the published shapes once") {
  const std::pair<const char*, Geometry> shapes[] = {{"1b", k1b}, {"8b", k8b}, {"70b", k70b}};
  for (const auto& shape : shapes) {
    const std::string name = shape.first;
    const Geometry& g = shape.second;
    CAPTURE(name);
    const PlanModel m = *plan_shape(name);
    const auto weights = [&](PlanWeights w) {
      return step_cost(m, {.weights = w}, kOne).weight_bytes - g.norms();
    };
    const uint64_t row = g.dim;  // of the embedding
    CHECK(weights(PlanWeights::kBf16) == 2 * (g.read() + row));
    CHECK(weights(PlanWeights::kW8) == (g.read() + row) * 34 / 32);
    CHECK(weights(PlanWeights::kW4) == (g.read() + row) * 18 / 32);
    // Products alone: two operations a weight; the rest is below 1 %.
    const double flops = static_cast<double>(step_cost(m, {}, kOne).flops);
    CHECK(flops / static_cast<double>(2 * g.read()) == doctest::Approx(1.0).epsilon(0.01));
  }
  CHECK(!plan_shape("7b"));
  CHECK(!plan_shape(""));
}

TEST_CASE("parameters of the published models") {
  const auto all = [](const Geometry& g, bool tied) {
    return static_cast<double>(g.read() + (tied ? 0 : g.vocab * g.dim));
  };
  CHECK(all(k1b, true) == doctest::Approx(1.236e9).epsilon(0.001));
  CHECK(all(k8b, false) == doctest::Approx(8.03e9).epsilon(0.001));
  CHECK(all(k70b, false) == doctest::Approx(70.55e9).epsilon(0.001));
  // All of them stay in memory.
  const auto held = [](const char* shape) {
    return static_cast<double>(
        plan_weight_bytes(*plan_shape(shape), {.weights = PlanWeights::kBf16}));
  };
  CHECK(held("1b") == doctest::Approx(2 * 1.236e9).epsilon(0.02));
  CHECK(held("8b") == doctest::Approx(2 * 8.03e9).epsilon(0.01));
  CHECK(held("70b") == doctest::Approx(2 * 70.55e9).epsilon(0.01));
}

TEST_CASE("a larger group saves scales, another output matrix counts alone") {
  const PlanModel m = *plan_shape("8b");
  const auto bytes = [&](PlanFormat format) { return step_cost(m, format, kOne).weight_bytes; };
  const uint64_t weights = k8b.read() + k8b.dim;
  CHECK(bytes({.weights = PlanWeights::kW4, .group = 128}) - k8b.norms() ==
        weights / 2 + weights / 128 * 2);
  CHECK(bytes({.weights = PlanWeights::kW8, .group = 64}) - k8b.norms() ==
        weights + weights / 64 * 2);
  CHECK(bytes({.weights = PlanWeights::kBf16, .group = 128}) ==
        bytes({.weights = PlanWeights::kBf16}));
  const uint64_t mixed = bytes({.weights = PlanWeights::kW4, .output = PlanWeights::kW8});
  CHECK(mixed - bytes({.weights = PlanWeights::kW4}) == k8b.vocab * k8b.dim / 2);
}

TEST_CASE("KV is read once a sequence, written once a row") {
  const PlanModel m = *plan_shape("8b");
  const auto kv = [&](kernels::KvType type, const PlanStep& step) {
    return step_cost(m, {.kv = type}, step).kv_bytes;
  };
  constexpr uint64_t kToken = 128 << 10;
  using kernels::KvType;
  CHECK(kv(KvType::kF16, {.batch = 3, .context = 100, .logits = 3}) == 3 * (100 + 1) * kToken);
  CHECK(kv(KvType::kBf16, {.batch = 1, .context = 7, .logits = 1}) == 8 * kToken);
  // A byte each, and 2 bytes of scale for each 128.
  CHECK(kv(KvType::kFp8, {.batch = 1, .context = 63, .logits = 1}) == 64 * kToken / 2 * 130 / 128);
  // A chunk of one prompt: its keys once, what came before among them.
  CHECK(kv(KvType::kInt8, {.chunk = 64, .cached = 192}) ==
        kv(KvType::kInt8, {.batch = 1, .context = 256 + 63, .logits = 1}));
  CHECK(plan_kv_layout(m, KvType::kF16).token_bytes() == kToken);
}

TEST_CASE("launches of a step") {
  int32_t launches = 0;
  const PlanModel m = *plan_shape("8b");
  for (const PlanOp& op : plan_ops(m, {}, kOne)) launches += op.times;
  // Embedding; two norms, four products, append and attention a layer; gather, norm, product,
  // choice
  CHECK(launches == 1 + 32 * 8 + 4);
  // A chunk in the middle of a prompt has no logits.
  launches = 0;
  for (const PlanOp& op : plan_ops(m, {}, {.chunk = 16})) launches += op.times;
  CHECK(launches == 1 + 32 * 8);
}

TEST_CASE("a file's own figures are those of its card") {
  for (const char* name : {"tiny/q4_0.gguf", "tiny/q4_1.gguf", "tiny/q8_0.gguf", "tiny/f16.gguf",
                           "tiny/bf16.gguf", "tiny/base.gguf", "script/base.gguf"}) {
    CAPTURE(std::string(name));
    const auto model = plan_model_of(test_model(name));
    REQUIRE(model);
    const auto file = worker::ModelFile::open(test_model(name));
    REQUIRE(file);
    const ModelCard card = (*file)->card({});
    CHECK(model->context == static_cast<int32_t>(card.context));
    CHECK(model->vocab == static_cast<int32_t>(card.vocab));
    CHECK(model->file_layers.size() == card.layers);
    const auto cost = step_cost(*model, {.weights = PlanWeights::kFile}, kOne);
    const uint64_t norms = (2 * uint64_t{card.layers} + 1) * card.dim * 4;
    // The embedding's row and the padding of units differ. 32-bit weights are three parts of 16
    // bits on a GPU.
    const bool wide = model->file_output == kernels::WeightType::kF32;
    const double products = static_cast<double>(cost.weight_bytes - norms);
    CHECK(products / static_cast<double>(card.cost.weight_bytes) ==
          doctest::Approx(wide ? 1.6 : 1.0).epsilon(0.1));
    CHECK(plan_kv_layout(*model, kernels::KvType::kF16).token_bytes() == card.cost.kv_token_bytes);
  }
}

TEST_CASE("what is no model is refused with its path") {
  const std::string path = test_model("bad/magic.gguf");
  const auto bad = plan_model_of(path);
  REQUIRE(!bad);
  CHECK(bad.error().message.find(path) != std::string::npos);
  CHECK(!plan_model_of("/dev/null"));
  CHECK(!plan_model_of(std::filesystem::temp_directory_path().string()));
}

TEST_CASE("activations grow with the rows") {
  const PlanModel m = *plan_shape("8b");
  const uint64_t one = plan_activation_bytes(m, 1, 1), many = plan_activation_bytes(m, 512, 64);
  CHECK(plan_activation_bytes(m, 512, 512) == 512 * one);
  CHECK(many < 512 * one);
  CHECK(many > 64 * one);
  CHECK(one > 4 * (4096 + 6144 + 128'256));
}

}  // namespace
}  // namespace headrace::cli

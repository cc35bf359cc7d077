#include "worker/weights.h"

#include <doctest/doctest.h>

#include "tests/worker/gguf_builder.h"
#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

Weights load(const ModelFile& model, int threads = 2) {
  auto weights = load_weights(model, threads);
  REQUIRE_MESSAGE(weights.has_value(), (weights ? "" : weights.error().message));
  return std::move(*weights);
}

// Rows of a packed matrix are the file's values, for each stored type.
void check_rows(const ModelFile& model, const std::string& tensor, const kernels::Matrix& matrix,
                int32_t first) {
  const GgufTensor* t = model.gguf().tensor(tensor);
  REQUIRE(t != nullptr);
  const auto cols = static_cast<int32_t>(t->cols()), rows = static_cast<int32_t>(t->rows());
  std::vector<std::byte> source(t->bytes);
  REQUIRE(model.gguf().file().read(t->offset, source).ok());
  std::vector<std::byte> alone(kernels::packed_bytes(matrix.type, rows, cols));
  kernels::Matrix m{.type = matrix.type, .rows = rows, .cols = cols, .data = alone.data()};
  for (int32_t tile = 0; tile < m.tiles(); tile++)
    kernels::pack_tile(t->type, source.data(), rows, cols, false, tile, alone.data());
  int different = 0;
  for (int32_t r = 0; r < rows; r++)
    for (int32_t c = 0; c < cols; c++)
      different += kernels::weight_at(m, r, c) != kernels::weight_at(matrix, first + r, c);
  CHECK(different == 0);
}

TEST_CASE("matrices that share an input become one, row for row") {
  for (const std::string name : {"base", "f16", "bf16", "q8_0", "q4_0", "q4_1"}) {
    CAPTURE(name);
    const auto model = open_model(test_model("tiny/" + name + ".gguf"));
    const Weights w = load(*model);
    REQUIRE(w.layers.size() == 2);
    const LayerWeights& l = w.layers[1];
    REQUIRE(l.qkv.parts.size() == 1);
    CHECK(l.qkv.rows == 128);
    const kernels::Matrix& qkv = l.qkv.parts[0].matrix;
    check_rows(*model, "blk.1.attn_q.weight", qkv, 0);
    check_rows(*model, "blk.1.attn_k.weight", qkv, 64);
    check_rows(*model, "blk.1.attn_v.weight", qkv, 96);
    check_rows(*model, "blk.1.ffn_up.weight", l.gate_up.parts[0].matrix, 96);
    check_rows(*model, "blk.1.ffn_down.weight", l.down.parts[0].matrix, 0);
    check_rows(*model, "token_embd.weight", w.embedding, 0);
  }
}

TEST_CASE("gate and up are paired for a CPU where both are whole tiles, row for row") {
  for (const std::string name : {"base", "q8_0", "q4_1"}) {
    CAPTURE(name);
    const auto model = open_model(test_model("tiny/" + name + ".gguf"));
    const auto device = kernels::make_cpu_device(kernels::CpuPath::kPortable, 1);
    const auto w = load_weights(*model, 2, {}, device.get());
    REQUIRE(w.has_value());
    const kernels::Matrix& m = w->layers[1].gate_up.parts.at(0).matrix;
    CHECK(m.paired == (m.rows % 64 == 0));
    CHECK(m.paired);
    check_rows(*model, "blk.1.ffn_gate.weight", m, 0);
    check_rows(*model, "blk.1.ffn_up.weight", m, m.rows / 2);
    CHECK_FALSE(w->layers[1].qkv.parts.at(0).matrix.paired);
  }
}

TEST_CASE("an odd number of rows a part is packed across tile borders") {
  GgufBuilder b;
  b.integer("llama.attention.key_length", 10);
  b.integer("llama.attention.value_length", 10);
  b.tensor("blk.0.attn_q.weight", {32, 20}, 1);
  b.tensor("blk.0.attn_k.weight", {32, 10}, 2);
  b.tensor("blk.0.attn_v.weight", {32, 10}, 3);
  b.tensor("blk.0.attn_output.weight", {20, 32});
  const TempFile file(b.bytes());
  const auto model = open_model(file.path());
  const Weights w = load(*model);
  const kernels::Matrix& qkv = w.layers[0].qkv.parts.at(0).matrix;
  for (int32_t r = 0; r < 40; r++)
    CHECK(kernels::weight_at(qkv, r, 5) == (r < 20 ? 1.0f : r < 30 ? 2.0f : 3.0f));
}

TEST_CASE("parts of different types stay apart, side by side in their output") {
  GgufBuilder b;
  b.tensor("blk.0.attn_k.weight", {32, 16}, 0.5f, 1);
  const TempFile file(b.bytes());
  const auto model = open_model(file.path());
  const Weights w = load(*model);
  const Projection& qkv = w.layers[0].qkv;
  REQUIRE(qkv.parts.size() == 3);
  CHECK(qkv.parts[1].at == 32);
  CHECK(qkv.parts[2].at == 48);
  CHECK(qkv.rows == 64);
  CHECK(qkv.any_float());
  CHECK_FALSE(qkv.any_quantized());
}

TEST_CASE("a tied embedding is held once") {
  const auto tied = open_model(test_model("tiny/tied.gguf"));
  const auto own = open_model(test_model("tiny/base.gguf"));
  const Weights a = load(*tied), b = load(*own);
  CHECK(a.output.parts.at(0).matrix.data == a.embedding.data);
  CHECK(b.output.parts.at(0).matrix.data != b.embedding.data);
  CHECK(b.memory.size() - a.memory.size() == a.embedding.bytes());
}

TEST_CASE("NaN and infinity are found and the tensor named") {
  const auto nan = load_weights(*open_model(test_model("script/nan.gguf")), 2);
  REQUIRE_FALSE(nan.has_value());
  CHECK(nan.error().code == Errc::kNumeric);
  CHECK(nan.error().message.ends_with("nan.gguf: tensor output.weight holds NaN or infinity"));
  GgufBuilder b;
  b.tensor("blk.0.ffn_norm.weight", {32}, std::numeric_limits<float>::infinity());
  const TempFile file(b.bytes());
  const auto inf = load_weights(*open_model(file.path()), 1);
  REQUIRE_FALSE(inf.has_value());
  CHECK(inf.error().message.ends_with("tensor blk.0.ffn_norm.weight holds NaN or infinity"));
}

TEST_CASE("a file that changes between opening and loading is refused") {
  TempFile file(GgufBuilder().bytes());
  const auto model = open_model(file.path());
  GgufBuilder longer;
  longer.tensor("output.weight", {32, 4});
  file.write(longer.bytes());
  const auto weights = load_weights(*model, 1);
  REQUIRE_FALSE(weights.has_value());
  CHECK(weights.error().message.ends_with("changed while it was read"));
}

TEST_CASE("the bytes do not depend on the number of threads, and progress ends at 1") {
  const auto model = open_model(test_model("tiny/q4_0.gguf"));
  double last = 0;
  auto three = load_weights(*model, 3, [&](double share) {
    CHECK(share > last);
    last = share;
  });
  REQUIRE(three.has_value());
  CHECK(last == 1.0);
  const Weights one = load(*model, 1);
  REQUIRE(one.memory.size() == three->memory.size());
  CHECK(std::memcmp(one.memory.data(), three->memory.data(), one.memory.size()) == 0);
}

}  // namespace
}  // namespace headrace::worker

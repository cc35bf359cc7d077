#include "worker/model_file.h"

#include <doctest/doctest.h>

#include <set>

#include "protocol/codec.h"
#include "tests/worker/gguf_builder.h"
#include "tests/worker/model_support.h"
#include "worker/handoff_wire.h"

namespace headrace::worker {
namespace {

TEST_CASE("a card names geometry, arithmetic and cost") {
  const auto model = open_model(test_model("tiny/q8_0.gguf"));
  const ModelCard card = model->card({.block_tokens = 16});
  CHECK(card.name == "tiny");
  CHECK(card.architecture == "llama");
  CHECK(card.layers == 2);
  CHECK(card.vocab == 259);
  CHECK(card.context == 1024);
  CHECK(card.block_bytes == 16u * 2 * 2 * 2 * 16 * 2);  // tokens, layers, heads, K and V, dim, f16
  CHECK(card.kv_layout == "f16 block[layer][head][K d,t|V t,d]");
  CHECK(card.numerics == "cpu-int8/32 slice" + std::to_string(kernels::kAttentionSlice));
  CHECK(card.cost.kv_token_bytes == 2u * 2 * 2 * 16 * 2);
  // q, k, v, o, gate, up, down of both layers; a multiply-add is two.
  CHECK(card.cost.flops_per_token == 2u * 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64));
  CHECK(card.cost.head_flops == 2u * 259 * 64);
  CHECK(card.cost.weight_bytes > card.cost.flops_per_token / 2);
  CHECK(card.cost.attention_flops > 0);
  CHECK(card.cost.quantized);
}

TEST_CASE("cards differ where results could") {
  const auto a = open_model(test_model("tiny/base.gguf"));
  const auto again = open_model(test_model("tiny/base.gguf"));
  const auto b = open_model(test_model("tiny/linear.gguf"));
  CHECK(a->card({}) == again->card({}));
  CHECK(a->card({}).weights != b->card({}).weights);
  CHECK(a->card({}).tokenizer == b->card({}).tokenizer);
  const CardOptions reference = CardOptions::of(*kernels::make_reference_device(1), 32);
  CHECK(a->card(reference).numerics == "reference-f32");
  CHECK(a->card(reference).kv_layout == "f32 block[layer][head][K d,t|V t,d]");
  CHECK_FALSE(a->card({}) == a->card(reference));
  CHECK_FALSE(a->card({.block_tokens = 16}) == a->card({.block_tokens = 64}));
}

TEST_CASE("each type of KV has a card of its own") {
  const auto model = open_model(test_model("tiny/q8_0.gguf"));
  const auto card = [&](kernels::KvType type) {
    return model->card({.block_tokens = 16, .kv_type = type, .kv_order = kernels::KvOrder::kRows});
  };
  constexpr size_t kRows = 16 * 2 * 2 * 2;  // of a block: tokens, layers, heads, K and V
  std::set<std::pair<uint64_t, uint64_t>> layouts;
  for (const kernels::KvType type : kernels::kKvTypes) {
    const bool scaled = kernels::scaled(type);
    CAPTURE(kernels::name(type));
    CHECK(card(type).block_bytes == kRows * (scaled ? 16 + 2 : 2 * 16));  // dims, scale
    CHECK(card(type).cost.kv_token_bytes == card(type).block_bytes / 16);
    CHECK(card(type).kv_layout == std::string(kernels::name(type)) +
                                      " block[layer][head][K t,d|V t,d" +
                                      (scaled ? "|f16 scales]" : "]"));
    const Digest layout = layout_digest(card(type));
    layouts.emplace(layout.hi, layout.lo);
  }
  CHECK(layouts.size() == std::size(kernels::kKvTypes));
}

TEST_CASE("rows beyond the tokenizer are known as such") {
  const auto model = open_model(test_model("script/padded.gguf"));
  CHECK(model->config().vocab == 288);
  CHECK(model->known_tokens() == 261);
}

TEST_CASE("a model without a name has that of its file") {
  const TempFile file(GgufBuilder().bytes());
  const std::string stem = std::filesystem::path(file.path()).stem().string();
  CHECK(open_model(file.path())->card({}).name == stem);
}

TEST_CASE("opening reports how far it is and passes faults on") {
  double share = 0;
  CHECK(ModelFile::open(test_model("tiny/base.gguf"), [&](double s) { share = s; }).has_value());
  CHECK(share == 1.0);
  const auto missing = ModelFile::open("no/such/model.gguf");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().message == "no/such/model.gguf: No such file or directory");
  GgufBuilder other;
  other.text("general.architecture", "bert");
  const TempFile file(other.bytes());
  CHECK(ModelFile::open(file.path())
            .error()
            .message.starts_with(file.path() + ": architecture bert"));
}

TEST_CASE("the real model's card") {
  const auto model = open_model(real_model());
  const ModelCard card = model->card({});
  CHECK(card.layers == 30);
  CHECK(card.dim == 576);
  CHECK(card.heads == 9);
  CHECK(card.kv_heads == 3);
  CHECK(card.context == 8192);
  CHECK(model->config().tied);
  CHECK(model->tokenizer().merges.size() == 48900);
  CHECK(model->tokenizer().end_tokens == std::vector<Token>{2});
}

}  // namespace
}  // namespace headrace::worker

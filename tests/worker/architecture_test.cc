#include "worker/architecture.h"

#include <doctest/doctest.h>

#include "tests/worker/gguf_builder.h"

namespace headrace::worker {
namespace {

Result<LlamaConfig> config_of(const GgufBuilder& b) {
  const TempFile file(b.bytes());
  const auto gguf = GgufFile::open(file.path());
  REQUIRE_MESSAGE(gguf.has_value(), (gguf ? "" : gguf.error().message));
  auto config = read_config(*gguf);
  if (!config)
    return error(config.error().code, config.error().message.substr(file.path().size() + 2));
  return config;
}

std::string fault_of(const GgufBuilder& b) {
  const auto config = config_of(b);
  return config ? "" : config.error().message;
}

TEST_CASE("a Llama's shape is read") {
  const auto c = config_of(GgufBuilder());
  REQUIRE_MESSAGE(c.has_value(), (c ? "" : c.error().message));
  CHECK(c->layers == 1);
  CHECK(c->heads == 2);
  CHECK(c->kv_heads == 1);
  CHECK(c->head_dim == 16);
  CHECK(c->rotated == 16);
  CHECK(c->qkv_rows() == 64);
  CHECK(c->vocab == 4);
  CHECK(c->tied);
  CHECK(c->rope_base == 10000.0);
  CHECK(c->rope_divisors.empty());
}

TEST_CASE("optional entries and tensors change it") {
  GgufBuilder b;
  b.integer("llama.attention.key_length", 8);
  b.integer("llama.attention.value_length", 8);
  b.integer("llama.rope.dimension_count", 4);
  b.number("llama.rope.freq_base", 5e5f);
  b.text("llama.rope.scaling.type", "linear");
  b.number("llama.rope.scaling.factor", 4);
  b.integer("llama.expert_count", 0);
  b.tensor("blk.0.attn_q.weight", {32, 16});
  b.tensor("blk.0.attn_k.weight", {32, 8});
  b.tensor("blk.0.attn_v.weight", {32, 8});
  b.tensor("blk.0.attn_output.weight", {16, 32});
  b.tensor("output.weight", {32, 4});
  b.tensor("rope_freqs.weight", {2}, 8);
  const auto c = config_of(b);
  REQUIRE_MESSAGE(c.has_value(), (c ? "" : c.error().message));
  CHECK(c->head_dim == 8);
  CHECK(c->rotated == 4);
  CHECK_FALSE(c->tied);
  CHECK(c->rope_base == 5e5);
  CHECK(c->rope_factor == 4);
  CHECK(c->rope_divisors == std::vector<float>{8, 8});
}

TEST_CASE("what we do not compute is refused by name") {
  const auto with = [](auto change) {
    GgufBuilder b;
    change(b);
    return fault_of(b);
  };
  CHECK(with([](auto& b) { b.text("general.architecture", "qwen2"); }) ==
        "architecture qwen2 is not supported yet; supported: llama");
  CHECK(with([](auto& b) { b.text("llama.rope.scaling.type", "yarn"); }) ==
        "RoPE scaling yarn is not supported yet; supported: none, linear");
  CHECK(with([](auto& b) { b.text("llama.rope.scaling.type", "a\nb"); }) ==
        "RoPE scaling a?b is not supported yet; supported: none, linear");
  CHECK(with([](auto& b) { b.integer("llama.attention.sliding_window", 4096); }) ==
        "metadata entry llama.attention.sliding_window asks for what is not supported yet");
  CHECK(with([](auto& b) {
          b.integer("llama.expert_count", 8);
        }).starts_with("metadata entry llama.expert_count"));
  CHECK(with([](auto& b) {
          b.number("llama.logit_scale", 0.5f);
        }).starts_with("metadata entry llama.logit_scale"));
  CHECK(with([](auto& b) {
          b.integer("llama.never_heard_of", 1);
        }).starts_with("metadata entry llama.never_heard_of"));
  CHECK(with([](auto& b) {
          b.flag("llama.attention.causal", false);
        }).starts_with("metadata entry llama.attention.causal"));
  CHECK(with([](auto& b) { b.tensor("blk.0.attn_q.bias", {32}); }) ==
        "tensor blk.0.attn_q.bias has no place in architecture llama as supported");
  CHECK(with([](auto& b) { b.tensor("blk.0.attn_norm.weight", {32}, 1, 1); }) ==
        "tensor blk.0.attn_norm.weight has type F16; norms have to be F32");
}

TEST_CASE("contradictions are refused by name") {
  const auto with = [](auto change) {
    GgufBuilder b;
    change(b);
    return fault_of(b);
  };
  CHECK(with([](auto& b) { b.erase("llama.context_length"); }) ==
        "metadata entry llama.context_length is missing");
  CHECK(with([](auto& b) { b.integer("llama.block_count", 0); }) ==
        "metadata entry llama.block_count is 0; possible are 1 to 1024");
  CHECK(with([](auto& b) { b.integer("llama.block_count", 2); }) ==
        "tensor blk.1.attn_norm.weight is missing");
  CHECK(with([](auto& b) { b.erase_tensor("token_embd.weight"); }) ==
        "tensor token_embd.weight is missing");
  CHECK(with([](auto& b) {
          b.tensor("blk.0.attn_k.weight", {32, 32});
        }) == "tensor blk.0.attn_k.weight is 32 x 32, should be 16 x 32");
  CHECK(with([](auto& b) {
          b.integer("llama.attention.head_count_kv", 3);
        }).ends_with("no multiple of the 3 key heads"));
  CHECK(with([](auto& b) {
          b.integer("llama.attention.value_length", 8);
        }).ends_with("differs from the key length: not supported yet"));
  CHECK(with([](auto& b) {
          b.integer("llama.rope.dimension_count", 3);
        }).ends_with("llama.rope.dimension_count is odd"));
  CHECK(with([](auto& b) {
          b.integer("llama.vocab_size", 5);
        }).ends_with("differs from the 4 rows of token_embd.weight"));
  CHECK(with([](auto& b) {
          b.number("llama.attention.layer_norm_rms_epsilon", -1);
        }).ends_with("has to be a positive number"));
  CHECK(with([](auto& b) { b.tensor("rope_freqs.weight", {8}, 0.0f); }) ==
        "tensor rope_freqs.weight holds a value that is not positive");
  CHECK(with([](auto& b) { b.tensor("rope_freqs.weight", {8}, 1e-30f); }) ==
        "has RoPE scaling that turns the last position by more than 2^24");
  CHECK(with([](auto& b) { b.tensor("rope_freqs.weight", {4}, 1); }) ==
        "tensor rope_freqs.weight should be 8 values F32");
}

}  // namespace
}  // namespace headrace::worker

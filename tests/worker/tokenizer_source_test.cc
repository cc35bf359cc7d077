#include "worker/tokenizer_source.h"

#include <doctest/doctest.h>

#include "tests/worker/gguf_builder.h"

namespace headrace::worker {
namespace {

Result<TokenizerData> tokenizer_of(const GgufBuilder& b, uint32_t rows = 4) {
  const TempFile file(b.bytes());
  const auto gguf = GgufFile::open(file.path());
  REQUIRE_MESSAGE(gguf.has_value(), (gguf ? "" : gguf.error().message));
  auto data = read_tokenizer(*gguf, rows);
  if (!data) return error(data.error().code, data.error().message.substr(file.path().size() + 2));
  return data;
}

TEST_CASE("merges become pairs of ids, special tokens are named") {
  GgufBuilder b;
  b.integers("tokenizer.ggml.token_type", {1, 1, 1, 3});
  b.integer("tokenizer.ggml.bos_token_id", 0);
  b.integer("tokenizer.ggml.eot_token_id", 2);
  b.flag("tokenizer.ggml.add_bos_token", true);
  b.text("tokenizer.chat_template", "{{ messages }}");
  const auto data = tokenizer_of(b);
  REQUIRE_MESSAGE(data.has_value(), (data ? "" : data.error().message));
  CHECK(data->tokens == std::vector<std::string>{"a", "b", "ab", "<end>"});
  CHECK(data->kinds[3] == TokenKind::kControl);
  CHECK(data->merges == std::vector<std::pair<Token, Token>>{{0, 1}});
  CHECK(data->bos == 0);
  CHECK(data->eos == 3);
  CHECK(data->end_tokens == std::vector<Token>{3, 2});
  CHECK(data->add_bos);
  CHECK(data->chat_template == "{{ messages }}");
}

TEST_CASE("unused tokens at the end are no tokens") {
  GgufBuilder b;
  b.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>", "<pad>"});
  b.integers("tokenizer.ggml.token_type", {1, 5, 1, 3, 5});
  const auto data = tokenizer_of(b, 5);
  REQUIRE(data.has_value());
  CHECK(data->tokens.size() == 4);
  CHECK(data->kinds.size() == 4);
}

TEST_CASE("a vocabulary that contradicts itself is refused") {
  const auto with = [](auto change, uint32_t rows = 4) {
    GgufBuilder b;
    change(b);
    const auto data = tokenizer_of(b, rows);
    return data ? "" : data.error().message;
  };
  CHECK(with([](auto&) {}, 3) == "has 4 tokens, but only 3 rows of embeddings");
  CHECK(with([](auto& b) { b.text("tokenizer.ggml.model", "llama"); }) ==
        "tokenizer llama is not supported yet; supported: gpt2");
  CHECK(with([](auto& b) { b.text("tokenizer.ggml.pre", "llama-bpe"); }) ==
        "pre-tokenizer llama-bpe is not supported yet; supported: smollm, gpt-2");
  CHECK(with([](auto& b) { b.erase("tokenizer.ggml.tokens"); }) ==
        "metadata entry tokenizer.ggml.tokens is missing");
  CHECK(with([](auto& b) {
          b.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "a"});
        }) == "tokens 0 and 3 have the same text");
  CHECK(with([](auto& b) {
          b.texts("tokenizer.ggml.tokens", {"a", "", "ab", "c"});
        }).starts_with("token 1 has 0 bytes"));
  CHECK(with([](auto& b) {
          b.integers("tokenizer.ggml.token_type", {1, 1});
        }) == "has 4 tokens but 2 token types");
  CHECK(with([](auto& b) {
          b.integers("tokenizer.ggml.token_type", {1, 1, 7, 1});
        }) == "token 2 has type 7; possible are 1 to 6");
  CHECK(with([](auto& b) { b.texts("tokenizer.ggml.merges", {"ab"}); }) ==
        "merge 0 is not two pieces with a space between");
  CHECK(with([](auto& b) {
          b.texts("tokenizer.ggml.merges", {"a b", "a a"});
        }) == "merge 1 names a piece that is not in the vocabulary");
  CHECK(with([](auto& b) { b.texts("tokenizer.ggml.merges", {"a c"}); }) ==
        "merge 0 names a piece that is not in the vocabulary");
  CHECK(with([](auto& b) { b.integer("tokenizer.ggml.eos_token_id", 4); }) ==
        "metadata entry tokenizer.ggml.eos_token_id is 4, but there are 4 tokens");
  CHECK(with([](auto& b) { b.flag("tokenizer.ggml.add_bos_token", true); }) ==
        "asks for a leading token but names none");
  CHECK(with([](auto& b) {
          b.flag("tokenizer.ggml.add_eos_token", true);
        }).ends_with("which is not supported yet"));
}

}  // namespace
}  // namespace headrace::worker

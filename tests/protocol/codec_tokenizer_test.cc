#include <doctest/doctest.h>

#include "protocol/limits.h"
#include "tests/protocol/codec_samples.h"

namespace headrace {
namespace {

std::string why(const TokenizerData& data) {
  const auto back = decode_tokenizer(encode(data));
  if (back) return "";
  CHECK(back.error().code == Errc::kInvalid);
  return back.error().message;
}

TEST_CASE("a tokenizer comes back as it went") {
  for (const TokenizerData& data : sample_tokenizers()) {
    const auto back = decode_tokenizer(encode(data));
    REQUIRE_MESSAGE(back, (back ? "" : back.error().message));
    CHECK(*back == data);
  }
}

TEST_CASE("the same tokenizer has the same bytes: its digest names it") {
  for (const TokenizerData& data : sample_tokenizers()) CHECK(encode(data) == encode(data));
}

TEST_CASE("what a tokenizer may not be") {
  TokenizerData data = sample_tokenizers()[1];
  data.kinds.pop_back();
  CHECK(why(data) == "TokenizerData.kinds: 3 kinds for 4 tokens");
  data.kinds.push_back(static_cast<TokenKind>(7));
  CHECK(why(data) == "TokenizerData.kinds: unknown kind 7");
  data.kinds.back() = static_cast<TokenKind>(0);
  CHECK(why(data) == "TokenizerData.kinds: unknown kind 0");
  data.kinds.back() = TokenKind::kByte;
  data.chat_template = std::string(limits::kStringBytes + 1, 'c');
  CHECK(why(data) == "TokenizerData.chatTemplate: 65537 bytes, the limit is 65536");
  data.chat_template = "";
  data.merges.resize(limits::kMerges);
  CHECK(why(data) == "");
  data.merges.resize(limits::kMerges + 1);
  CHECK(why(data) == "TokenizerData.mergesLeft: 2097153 entries, the limit is 2097152");
}

TEST_CASE("a vocabulary at its limit passes, above it does not") {
  TokenizerData data;
  data.tokens.resize(limits::kVocabulary);
  data.kinds.resize(limits::kVocabulary, TokenKind::kNormal);
  CHECK(why(data) == "");
  data.tokens.emplace_back();
  CHECK(why(data) == "TokenizerData.tokens: 1048577 entries, the limit is 1048576");
}

TEST_CASE("cut and mutated tokenizers never do harm") {
  const Bytes frame = encode(sample_tokenizers()[1]);
  const size_t refused = torture(frame, 5000, [](auto bytes) {
    const auto back = decode_tokenizer(bytes);
    return back ? Status{} : back.error();
  });
  CHECK(refused > frame.size());
}

}  // namespace
}  // namespace headrace

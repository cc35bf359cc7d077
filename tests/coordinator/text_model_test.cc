#include "coordinator/text_model.h"
#include "protocol/codec.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
namespace {

// All 256 bytes as tokens of one byte, in the byte-level alphabet of GPT-2, then an end token.
TokenizerData bytes_only() {
  TokenizerData d;
  d.model = "gpt2";
  d.pre = "gpt-2";
  int moved = 0;
  const auto utf8 = [](int c) {
    std::string s;
    if (c < 0x80) {
      s += static_cast<char>(c);
    } else {
      s += static_cast<char>(0xC0 | c >> 6);
      s += static_cast<char>(0x80 | (c & 0x3F));
    }
    return s;
  };
  for (int b = 0; b < 256; ++b) {
    const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    d.tokens.push_back(utf8(shown ? b : 256 + moved++));
    d.kinds.push_back(TokenKind::kNormal);
  }
  d.tokens.push_back("<end>");
  d.kinds.push_back(TokenKind::kControl);
  d.eos = 256;
  d.end_tokens = {256};
  return d;
}

}  // namespace

TEST_CASE("the encoded tokenizer of a worker becomes text and ids") {
  auto model = make_text_model(encode(bytes_only()));
  REQUIRE(model);
  const TextModel& m = **model;
  CHECK(*m.encode("Az", false) == std::vector<Token>{'A', 'z'});
  CHECK(m.encode("<end>", false)->size() == 5);
  CHECK(*m.encode("<end>", true) == std::vector<Token>{256});
  CHECK(*m.encode(std::vector<Token>{3, 999}, false) == std::vector<Token>{3, 999});
  CHECK_FALSE(m.encode(std::vector<ChatMessage>{{"user", "x"}}, false));  // no template
  CHECK_FALSE(m.has_chat());
  CHECK(m.end_tokens() == std::vector<Token>{256});
  const std::vector<Token> ids = {'A', 256, 0xC3};
  CHECK(*m.decode(ids) == "A<end>\xEF\xBF\xBD");
  const std::vector<Token> unknown = {257};
  CHECK_FALSE(m.decode(unknown));
}

TEST_CASE("what is wrong in messages is said with the field of the request") {
  auto data = bytes_only();
  data.chat_template = "{{ messages[0].content }}";
  auto model = make_text_model(encode(data));
  REQUIRE(model);
  CHECK(*(*model)->encode(std::vector<ChatMessage>{{"user", "x"}}, false) ==
        std::vector<Token>{'x'});
  const auto wrong = (*model)->encode(std::vector<ChatMessage>{{"", "x"}}, false);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().message == "prompt: messages[0].role is empty");
}

TEST_CASE("the cutter holds a character back until it is whole, and outlives the model") {
  auto model = make_text_model(encode(bytes_only()));
  REQUIRE(model);
  auto cutter = (*model)->cutter();
  *model = nullptr;
  const auto push = [&](std::vector<Token> ids) { return cutter->push(ids); };
  CHECK(push({'a', 0xC3}) == "a");
  CHECK(push({0xA9}) == "\xC3\xA9");
  CHECK(push({5000, 'b'}) == "b");  // a row of the output matrix that is no token
  CHECK(push({0xC3}).empty());
  CHECK(cutter->finish() == "\xEF\xBF\xBD");
}

TEST_CASE("bytes that are no tokenizer, or one that is not supported, are refused") {
  CHECK_FALSE(make_text_model(Bytes(100, std::byte{0xFF})));
  CHECK_FALSE(make_text_model({}));
  auto data = bytes_only();
  data.pre = "klingon";
  auto no = make_text_model(encode(data));
  REQUIRE_FALSE(no);
  CHECK(no.error().message.find("klingon") != std::string::npos);
}

}  // namespace headrace::coordinator

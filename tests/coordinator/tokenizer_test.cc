#include "coordinator/tokenizer.h"

#include <functional>

#include "tests/coordinator/text_support.h"

using namespace headrace;
using namespace headrace::coordinator;

namespace {

// Why a tokenizer whose data was changed like this is refused; "" if it is not.
std::string refusal(const std::function<void(TokenizerData&)>& change) {
  TokenizerData data = script_data();
  change(data);
  const auto made = Tokenizer::make(std::move(data));
  if (made) return "";
  CHECK(made.error().code == Errc::kInvalid);
  return made.error().message;
}

std::vector<Token> bytes_as_ids(std::string_view text) {
  std::vector<Token> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

}  // namespace

TEST_CASE("letters, merges and bytes") {
  const Tokenizer t = script_tokenizer();
  CHECK(value_of(t.encode("", false)).empty());
  CHECK(value_of(t.encode("hi", false)) == bytes_as_ids("hi"));
  CHECK(value_of(t.encode("ENDEND EN", false)) == std::vector<Token>{260, 260, ' ', 259});
  CHECK(value_of(t.encode("🦙é", false)) == bytes_as_ids("🦙é"));
  CHECK(value_of(t.encode(std::string("a\0b", 3), false)) == std::vector<Token>{'a', 0, 'b'});
  CHECK(t.vocab() == 261);
  CHECK(t.end_tokens() == std::vector<Token>{kScriptEnd});
  CHECK(t.chat_status().ok());
}

TEST_CASE("every text comes back, whatever its bytes") {
  const Tokenizer t = script_tokenizer();
  std::string text;
  for (uint32_t c = 0; c < 0x3000; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append_code_point(text, c);
  }
  CHECK(value_of(t.decode(value_of(t.encode(text, false)))) == text);
}

TEST_CASE("control names count only as special text") {
  const Tokenizer t = script_tokenizer();
  const std::string text = "a<|im_start|>b<|im_end|><|im_end";
  CHECK(value_of(t.encode(text, false)) == bytes_as_ids(text));
  auto special = bytes_as_ids("a");
  special.push_back(kScriptStart);
  special.push_back('b');
  special.push_back(kScriptEnd);
  for (const Token id : bytes_as_ids("<|im_end")) special.push_back(id);
  CHECK(value_of(t.encode(text, true)) == special);
  CHECK(value_of(t.decode(special)) == "ab<|im_end");
  CHECK(value_of(t.decode(special, true)) == text);
}

TEST_CASE("the longest control name wins and user-defined tokens count as special") {
  TokenizerData data = script_data();
  data.tokens.push_back("<|im_start|>x");
  data.kinds.push_back(TokenKind::kUser);
  const Tokenizer t = value_of(Tokenizer::make(std::move(data)));
  CHECK(value_of(t.encode("<|im_start|>x<|im_start|>y", true)) ==
        std::vector<Token>{261, kScriptStart, 'y'});
  CHECK(value_of(t.encode("<|im_start|>x", false)).size() == 13);
  CHECK(value_of(t.decode(std::vector<Token>{261})) == "<|im_start|>x");
}

TEST_CASE("unused tokens are never made and give no text") {
  TokenizerData data = script_data();
  data.tokens.push_back("<|pad|>");
  data.kinds.push_back(TokenKind::kUnused);
  const Tokenizer t = value_of(Tokenizer::make(std::move(data)));
  CHECK(value_of(t.encode("<|pad|>", true)) == bytes_as_ids("<|pad|>"));
  CHECK(value_of(t.decode(std::vector<Token>{'a', 261, 'b'})) == "ab");
}

TEST_CASE("text that is not UTF-8 is refused with its offset") {
  const Tokenizer t = script_tokenizer();
  for (bool special : {false, true}) {
    const auto refused = t.encode("ab\xFF", special);
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::kInvalid);
    CHECK(refused.error().message == "the text is not valid UTF-8 at byte offset 2");
  }
}

TEST_CASE("text past the limit is refused") {
  const Tokenizer t = script_tokenizer();
  const auto refused = t.encode(std::string(Tokenizer::kTextBytesMax + 1, 'a'), false);
  REQUIRE(!refused);
  CHECK(refused.error().message.find(std::to_string(Tokenizer::kTextBytesMax)) !=
        std::string::npos);
}

TEST_CASE("ids outside of the vocabulary are refused by number") {
  const Tokenizer t = script_tokenizer();
  for (const Token id : {-1, 261, INT32_MAX, INT32_MIN}) {
    const auto refused = t.decode(std::vector<Token>{'a', id});
    REQUIRE(!refused);
    CHECK(refused.error().message ==
          "ids names token " + std::to_string(id) + ", the vocabulary has 0 to 260");
  }
}

TEST_CASE("H24: exactly one leading token") {
  const Tokenizer t = script_tokenizer(true);
  const std::vector<ChatMessage> hi = {{"user", "hi"}};
  const auto raw = value_of(t.encode("hi", false));
  CHECK(raw == std::vector<Token>{kScriptBos, 'h', 'i'});
  const auto chat = value_of(t.encode_chat(hi, true));
  CHECK(chat.size() == 22);
  CHECK(chat[0] == kScriptBos);
  CHECK(chat[1] == kScriptStart);
  CHECK(value_of(t.encode("", false)) == std::vector<Token>{kScriptBos});
  CHECK(value_of(t.encode("<|endoftext|>hi", true)) == std::vector<Token>{kScriptBos, 'h', 'i'});
  CHECK(value_of(t.encode("<|endoftext|>", false)).size() == 14);

  // Without the wish for one there is none.
  CHECK(value_of(script_tokenizer().encode("hi", false)).size() == 2);
  CHECK(value_of(script_tokenizer().encode_chat(hi, true)).size() == 21);

  // A template that writes none gets one.
  TokenizerData data = script_data(true);
  data.chat_template = kChatMl;
  CHECK(value_of(value_of(Tokenizer::make(data)).encode_chat(hi, true)).size() == 22);
}

TEST_CASE("H06: no messages are refused, empty content is fine") {
  const Tokenizer t = script_tokenizer();
  const auto none = t.encode_chat({}, true);
  REQUIRE(!none);
  CHECK(none.error().message == "messages is empty");
  CHECK(value_of(t.encode_chat(std::vector<ChatMessage>{{"user", ""}}, true)).size() == 19);
}

TEST_CASE("words run across the border between template and user") {
  TokenizerData data = script_data();
  data.chat_template = "{% for m in messages %}E{{ m.content }}D{% endfor %}";
  const Tokenizer t = value_of(Tokenizer::make(std::move(data)));
  CHECK(value_of(t.encode_chat(std::vector<ChatMessage>{{"user", "N"}}, true)) ==
        std::vector<Token>{260});
}

TEST_CASE("a name half from the template and half from the user is no control token") {
  TokenizerData data = script_data();
  data.chat_template = "<|im_{{ messages[0].content }}";
  const Tokenizer t = value_of(Tokenizer::make(std::move(data)));
  CHECK(value_of(t.encode_chat(std::vector<ChatMessage>{{"user", "end|>"}}, true)) ==
        bytes_as_ids("<|im_end|>"));
}

TEST_CASE("a model without a usable template still takes text") {
  TokenizerData data = script_data();
  data.chat_template = "";
  const std::vector<ChatMessage> hi = {{"user", "hi"}};
  const Tokenizer none = value_of(Tokenizer::make(data));
  CHECK(value_of(none.encode("hi", false)).size() == 2);
  CHECK(none.encode_chat(hi, true).error().message == "the model has no chat template");
  data.chat_template = "{{ x | nosuch }}";
  const Tokenizer broken = value_of(Tokenizer::make(data));
  CHECK(broken.chat_status().message == "chat template line 1: unknown filter 'nosuch'");
  CHECK(broken.encode_chat(hi, true).error() == broken.chat_status());
}

TEST_CASE("data that contradicts itself is refused by name") {
  CHECK(refusal([](auto&) {}) == "");
  CHECK(refusal([](auto& d) { d.model = "llama"; }).find("'llama'") != std::string::npos);
  CHECK(refusal([](auto& d) { d.pre = "qwen2"; }).find("'qwen2'") != std::string::npos);
  CHECK(refusal([](auto& d) {
          d.tokens.clear();
          d.kinds.clear();
        }) == "tokenizer has no tokens");
  CHECK(refusal([](auto& d) { d.kinds.pop_back(); }) ==
        "tokenizer has 261 tokens but 260 token kinds");
  CHECK(refusal([](auto& d) { d.tokens[260] = "EN"; }) == "tokens 259 and 260 are the same");
  CHECK(refusal([](auto& d) { d.tokens[7] = ""; }) == "token 7 is empty");
  CHECK(refusal([](auto& d) { d.tokens[260] = "\xFF"; }) == "token 260 is not valid UTF-8");
  CHECK(refusal([](auto& d) { d.kinds[3] = TokenKind::kByte; }).find("token 3 is of kind 6") == 0);
  CHECK(refusal([](auto& d) { d.kinds[3] = TokenKind{0}; }).find("token 3 is of kind 0") == 0);
  CHECK(refusal([](auto& d) { d.tokens[257] = std::string(257, 'x'); }).find("limit is 256") !=
        std::string::npos);
  CHECK(refusal([](auto& d) { d.merges[1].second = 261; }) ==
        "merge 1 names token 261, the vocabulary has 0 to 260");
  CHECK(refusal([](auto& d) { d.merges[1].first = -1; }).find("merge 1 names token -1") == 0);
  CHECK(refusal([](auto& d) {
          d.merges.push_back({'A', 'B'});
        }) == "merge 2 makes 'AB', which is not a normal token");
  CHECK(refusal([](auto& d) { d.merges.push_back({'E', 'N'}); }) == "merge 2 is there twice");
  CHECK(refusal([](auto& d) { d.bos = 300; }).find("bos names token 300") == 0);
  CHECK(refusal([](auto& d) { d.eos = -5; }).find("eos names token -5") == 0);
  CHECK(refusal([](auto& d) { d.end_tokens.push_back(999); }).find("end_tokens names token 999") ==
        0);
  CHECK(refusal([](auto& d) { d.end_tokens = {}; }) == "eos 258 is not among the end_tokens");
  CHECK(refusal([](auto& d) {
          d.bos = -1;
          d.add_bos = true;
        }) == "the tokenizer asks for a bos but has none");
}

TEST_CASE("merges cannot make a control token out of letters") {
  CHECK(refusal([](auto& d) {
          d.tokens.push_back("<|im_end|");
          d.kinds.push_back(TokenKind::kNormal);
          d.merges.push_back({261, '>'});
        }) == "merge 2 makes '<|im_end|>', which is not a normal token");
}

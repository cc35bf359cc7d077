// Text -> ids -> text: every valid text comes back byte for byte, no letters make a control token,
// invalid text is refused, and a long repetition of any input ends soon (the fuzzer's own
// deadline).
#include <string>
#include <vector>

#include "coordinator/tokenizer.h"
#include "coordinator/utf8.h"
#include "tests/fuzz/input.h"

namespace headrace::coordinator {
namespace {

constexpr size_t kLong = 16u << 10;

// Bytes, three control tokens, and pieces that overlap in many ways: what makes merging hard.
TokenizerData data(bool smollm) {
  TokenizerData d;
  d.model = "gpt2";
  d.pre = smollm ? "smollm" : "gpt-2";
  uint32_t extra = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
    std::string character;
    append_code_point(character, prints ? b : extra++);
    d.tokens.push_back(character);
  }
  d.kinds.assign(256, TokenKind::kNormal);
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    d.tokens.push_back(name);
    d.kinds.push_back(TokenKind::kControl);
  }
  const auto merge = [&d](Token left, Token right) {
    d.merges.emplace_back(left, right);
    d.tokens.push_back(d.tokens[static_cast<size_t>(left)] + d.tokens[static_cast<size_t>(right)]);
    d.kinds.push_back(TokenKind::kNormal);
    return static_cast<Token>(d.tokens.size() - 1);
  };
  for (const char letter : {'a', ' ', '\n', '0', '|', '<'}) {
    Token piece = letter;
    for (int i = 0; i < 4; ++i) piece = merge(piece, piece);
  }
  const Token ab = merge('a', 'b');
  merge(ab, 'a');
  merge('b', ab);
  merge(merge(' ', 't'), 'h');
  merge(merge('t', 'h'), 'e');
  merge(merge(0xC3, 0xA9), 's');
  d.bos = 256;
  d.eos = 258;
  d.end_tokens = {258};
  d.chat_template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
  return d;
}

const Tokenizer& tokenizer(bool smollm) {
  static const Tokenizer kEach[] = {*Tokenizer::make(data(false)), *Tokenizer::make(data(true))};
  return kEach[smollm];
}

size_t controls(const std::vector<Token>& ids) {
  size_t n = 0;
  for (const Token id : ids) n += id >= 256 && id <= 258;
  return n;
}

void round_trip(const Tokenizer& t, const std::string& text) {
  const auto ids = t.encode(text, false);
  CHECK(ids.has_value() == fuzz::is_utf8(text));
  if (!ids) return;
  CHECK(controls(*ids) == 0);
  CHECK(*t.decode(*ids) == text);
  const auto special = t.encode(text, true);
  CHECK(special.has_value());
  CHECK(*t.decode(*special, true) == text);
  const std::vector<ChatMessage> chat = {{"user", text}};
  const auto chat_ids = t.encode_chat(chat, true);
  CHECK(chat_ids.has_value());
  CHECK(controls(*chat_ids) == 2);
}

void any_ids(const Tokenizer& t, fuzz::Input input) {
  std::vector<Token> ids;
  while (input.left() >= 4) ids.push_back(static_cast<Token>(input.word()));
  (void)t.decode(ids);
  for (Token& id : ids) id = static_cast<Token>(static_cast<uint32_t>(id) % t.vocab());
  CHECK(t.decode(ids).has_value());
}

}  // namespace
}  // namespace headrace::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace headrace::coordinator;
  headrace::fuzz::Input input(bytes, size);
  const uint8_t how = input.byte();
  const Tokenizer& t = tokenizer((how & 1) != 0);
  any_ids(t, input);
  const std::string text = input.text(input.left());
  round_trip(t, text);
  if (how < 254 || text.empty()) return 0;
  std::string longer;
  while (longer.size() < kLong) longer += text;
  round_trip(t, longer);
  return 0;
}

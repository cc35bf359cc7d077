#include "coordinator/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

constexpr size_t kTokenBytesTotalMax = 256u << 20;

Status invalid(std::string message) { return error(Errc::kInvalid, std::move(message)); }

std::string hex(uint8_t byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  return std::string("0x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

// GPT-2's alphabet: bytes that print stand for themselves, the others for U+0100 and on.
struct ByteAlphabet {
  std::array<uint32_t, 256> character{};            // by byte
  std::array<int16_t, 256 + 68> byte_of_character;  // by character, -1: none

  ByteAlphabet() {
    byte_of_character.fill(-1);
    uint32_t extra = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      character[b] = prints ? b : extra++;
      byte_of_character[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

// Bytes that a token written in the alphabet stands for; a token with any other character stands
// for its own text.
std::string to_bytes(const std::string& token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    const auto& bytes = alphabet().byte_of_character;
    if (c.value >= bytes.size() || bytes[c.value] < 0) return token;
    out += static_cast<char>(bytes[c.value]);
    at += c.bytes;
  }
  return out;
}

bool known(TokenKind kind) { return kind >= TokenKind::kNormal && kind <= TokenKind::kUnused; }

bool is_control(TokenKind kind) { return kind == TokenKind::kControl || kind == TokenKind::kUser; }

using TokenIndex = std::unordered_map<std::string_view, Token>;

}  // namespace

Result<Tokenizer> Tokenizer::make(TokenizerData data) {
  if (data.model != "gpt2") {
    return invalid("tokenizer model '" + data.model + "' is not supported (supported: gpt2)");
  }
  auto rule = pretokenizer_named(data.pre);
  if (!rule) return rule.error();
  Tokenizer made;
  made.rule_ = *rule;
  for (const auto step :
       {&Tokenizer::read_tokens, &Tokenizer::read_merges, &Tokenizer::read_ends}) {
    if (Status status = (made.*step)(data); !status.ok()) return status;
  }
  made.read_template(data);
  return made;
}

Status Tokenizer::read_tokens(const TokenizerData& data) {
  if (data.tokens.empty()) return invalid("tokenizer has no tokens");
  if (data.tokens.size() > kVocabMax) {
    return invalid("tokenizer has " + std::to_string(data.tokens.size()) +
                   " tokens, the limit is " + std::to_string(kVocabMax));
  }
  if (data.kinds.size() != data.tokens.size()) {
    return invalid("tokenizer has " + std::to_string(data.tokens.size()) + " tokens but " +
                   std::to_string(data.kinds.size()) + " token kinds");
  }
  size_t total = 0;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    const std::string label = "token " + std::to_string(id);
    const TokenKind kind = data.kinds[id];
    if (!known(kind)) {
      return invalid(label + " is of kind " + std::to_string(static_cast<int>(kind)) +
                     ", which byte-level BPE does not have");
    }
    if (token.empty()) return invalid(label + " is empty");
    if (first_invalid_utf8(token) != std::string_view::npos) {
      return invalid(label + " is not valid UTF-8");
    }
    if (is_control(kind) && !controls_.add(token, static_cast<Token>(id))) {
      return invalid(label + " is a control token with a name of " + std::to_string(token.size()) +
                     " bytes, the limit is " + std::to_string(ControlNames::kNameBytesMax));
    }
    total += token.size();
    if (total > kTokenBytesTotalMax) {
      return invalid("the tokens are longer than " + std::to_string(kTokenBytesTotalMax) +
                     " bytes in all");
    }
    begins_.push_back(static_cast<uint32_t>(bytes_.size()));
    bytes_ += kind == TokenKind::kNormal ? to_bytes(token) : token;
  }
  begins_.push_back(static_cast<uint32_t>(bytes_.size()));
  kinds_ = data.kinds;
  return {};
}

Status Tokenizer::read_merges(const TokenizerData& data) {
  TokenIndex index;
  index.reserve(data.tokens.size());
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const auto [it, added] = index.try_emplace(data.tokens[id], static_cast<Token>(id));
    if (!added) {
      return invalid("tokens " + std::to_string(it->second) + " and " + std::to_string(id) +
                     " are the same");
    }
  }
  const auto normal = [&](std::string_view text) {
    const auto it = index.find(text);
    const bool found =
        it != index.end() && kinds_[static_cast<size_t>(it->second)] == TokenKind::kNormal;
    return found ? it->second : -1;
  };
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string character;
    append_code_point(character, alphabet().character[byte]);
    byte_tokens_[byte] = normal(character);
  }
  merges_.reserve(data.merges.size());
  for (size_t i = 0; i < data.merges.size(); ++i) {
    const auto [left, right] = data.merges[i];
    const std::string label = "merge " + std::to_string(i);
    for (const Token id : {left, right}) {
      if (Status status = check_id(id, label.c_str()); !status.ok()) return status;
    }
    const std::string text =
        data.tokens[static_cast<size_t>(left)] + data.tokens[static_cast<size_t>(right)];
    const Token result = normal(text);
    if (result < 0) return invalid(label + " makes '" + text + "', which is not a normal token");
    if (!merges_.add(left, right, result)) return invalid(label + " is there twice");
  }
  return {};
}

Status Tokenizer::read_ends(const TokenizerData& data) {
  for (const auto& [id, field] : {std::pair{data.bos, "bos"}, std::pair{data.eos, "eos"}}) {
    if (id == -1) continue;
    if (Status status = check_id(id, field); !status.ok()) return status;
  }
  for (const Token id : data.end_tokens) {
    if (Status status = check_id(id, "end_tokens"); !status.ok()) return status;
  }
  if (data.eos >= 0 && std::ranges::find(data.end_tokens, data.eos) == data.end_tokens.end()) {
    return invalid("eos " + std::to_string(data.eos) + " is not among the end_tokens");
  }
  if (data.add_bos && data.bos < 0) return invalid("the tokenizer asks for a bos but has none");
  bos_ = data.bos;
  eos_ = data.eos;
  end_tokens_ = data.end_tokens;
  add_bos_ = data.add_bos;
  return {};
}

void Tokenizer::read_template(const TokenizerData& data) {
  if (data.chat_template.empty()) {
    chat_status_ = invalid("the model has no chat template");
    return;
  }
  auto parsed = ChatTemplate::parse(data.chat_template);
  if (parsed) {
    template_ = *std::move(parsed);
  } else {
    chat_status_ = parsed.error();
  }
}

Status Tokenizer::check_id(Token id, const char* field) const {
  if (id >= 0 && static_cast<size_t>(id) < kinds_.size()) return {};
  return invalid(std::string(field) + " names token " + std::to_string(id) +
                 ", the vocabulary has 0 to " + std::to_string(kinds_.size() - 1));
}

bool Tokenizer::hidden(Token id) const {
  const TokenKind kind = kinds_[static_cast<size_t>(id)];
  return kind != TokenKind::kNormal && kind != TokenKind::kUser;
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, bool special) const {
  const Segment whole{std::string(text.substr(0, kTextBytesMax + 1)), special};
  return encode_segments({&whole, 1});
}

Result<std::vector<Token>> Tokenizer::encode_chat(std::span<const ChatMessage> messages,
                                                  bool add_generation_prompt) const {
  if (!template_) return chat_status_;
  const auto name_of = [&](Token id) {
    return id < 0 ? std::string() : std::string(*bytes_of(id, true));
  };
  ChatInput input;
  input.messages = messages;
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = name_of(bos_);
  input.eos_token = name_of(eos_);
  auto segments = template_->render(input);
  if (!segments) return segments.error();
  return encode_segments(*segments);
}

// The words of the text between two control tokens run across segments: where a user's letters meet
// the template's they are cut as in one text.
Result<std::vector<Token>> Tokenizer::encode_segments(std::span<const Segment> segments) const {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  if (text.size() > kTextBytesMax) {
    return invalid("the text is longer than the limit of " + std::to_string(kTextBytesMax) +
                   " bytes");
  }
  if (const size_t bad = first_invalid_utf8(text); bad != std::string::npos) {
    return invalid("the text is not valid UTF-8 at byte offset " + std::to_string(bad));
  }
  std::vector<Token> out;
  BpeMerges::Scratch scratch;
  size_t letters = 0;  // where the text that is not encoded yet begins
  size_t at = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    size_t end = at + segments[s].text.size();
    if (!segments[s].from_template) {
      at = end;
      continue;
    }
    while (s + 1 < segments.size() && segments[s + 1].from_template) {
      end += segments[++s].text.size();
    }
    const std::string_view seen = std::string_view(text).substr(0, end);
    while (at < end) {
      const auto match = controls_.match(seen, at);
      if (match.bytes == 0) {
        ++at;
        continue;
      }
      if (Status st = encode_letters(text, letters, at, scratch, out); !st.ok()) return st;
      out.push_back(match.id);
      at += match.bytes;
      letters = at;
    }
  }
  if (Status st = encode_letters(text, letters, text.size(), scratch, out); !st.ok()) return st;
  if (add_bos_ && (out.empty() || out[0] != bos_)) out.insert(out.begin(), bos_);
  return out;
}

Status Tokenizer::encode_letters(std::string_view text, size_t begin, size_t end,
                                 BpeMerges::Scratch& scratch, std::vector<Token>& out) const {
  WordSplitter splitter(rule_, text.substr(begin, end - begin));
  std::string_view word;
  std::vector<Token> symbols;
  while (splitter.next(word)) {
    symbols.clear();
    for (const char c : word) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte_tokens_[byte] < 0) {
        const auto offset = static_cast<size_t>(word.data() - text.data()) + symbols.size();
        return invalid("byte " + hex(byte) + " at offset " + std::to_string(offset) +
                       " has no token in this vocabulary");
      }
      symbols.push_back(byte_tokens_[byte]);
    }
    merges_.apply(symbols, scratch, out);
  }
  return {};
}

Result<std::string_view> Tokenizer::bytes_of(Token id, bool special) const {
  if (Status status = check_id(id, "ids"); !status.ok()) return status;
  if (hidden(id) && !special) return std::string_view();
  const auto i = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
}

Result<std::string> Tokenizer::decode(std::span<const Token> ids, bool special) const {
  std::string out;
  for (const Token id : ids) {
    auto bytes = bytes_of(id, special);
    if (!bytes) return bytes.error();
    out += *bytes;
  }
  return out;
}

}  // namespace headrace::coordinator

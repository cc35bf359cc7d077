#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/chat_template.h"
#include "coordinator/template_eval.h"
#include "coordinator/tokenizer.h"
#include "coordinator/utf8.h"
#include "worker/tokenizer_source.h"

// Tokenizers and templates for the tests of the text edge.
namespace headrace::coordinator {

inline std::string test_file(const char* variable, const std::string& otherwise) {
  const char* named = std::getenv(variable);
  return named != nullptr && *named != '\0' ? named : otherwise;
}

inline nlohmann::json handed_cases() {
  const std::string path = std::string(HEADRACE_TEST_DATA) + "/tokenizer_handed.json";
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), "cannot read " << path);
  return nlohmann::json::parse(in);
}

template <class T>
T value_of(Result<T> result) {
  REQUIRE_MESSAGE(result.has_value(), (result ? "" : result.error().message));
  return *std::move(result);
}

// SmolLM2's tokenizer, from the model file.
inline const Tokenizer& smollm2() {
  static const Tokenizer kTokenizer = [] {
    const std::string path =
        test_file("HEADRACE_TEST_MODEL",
                  std::string(HEADRACE_TEST_MODELS) + "/SmolLM2-135M-Instruct.Q4_1.gguf");
    const auto file = value_of(worker::GgufFile::open(path));
    return value_of(Tokenizer::make(value_of(worker::read_tokenizer(file, 49152))));
  }();
  return kTokenizer;
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";

constexpr Token kScriptBos = 256;
constexpr Token kScriptStart = 257;
constexpr Token kScriptEnd = 258;

// The tokenizer of the script model S: bytes, three control tokens, "EN" and "END". With `bos` both
// the model and its template ask for a leading token.
inline TokenizerData script_data(bool bos = false) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  uint32_t extra = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
    std::string character;
    append_code_point(character, prints ? b : extra++);
    data.tokens.push_back(character);
  }
  data.kinds.assign(256, TokenKind::kNormal);
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    data.tokens.push_back(name);
    data.kinds.push_back(TokenKind::kControl);
  }
  for (const char* piece : {"EN", "END"}) {
    data.tokens.push_back(piece);
    data.kinds.push_back(TokenKind::kNormal);
  }
  data.merges = {{'E', 'N'}, {259, 'D'}};
  data.bos = kScriptBos;
  data.eos = kScriptEnd;
  data.end_tokens = {kScriptEnd};
  data.add_bos = bos;
  data.chat_template = std::string(bos ? "{{ bos_token }}" : "") + kChatMl;
  return data;
}

inline Tokenizer script_tokenizer(bool bos = false) {
  return value_of(Tokenizer::make(script_data(bos)));
}

// What a template makes of one user message "hi <b>", or the error's message.
inline std::string rendered(std::string_view source,
                            std::vector<ChatMessage> messages = {{"user", "hi <b>"}}) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed) return "! " + parsed.error().message;
  ChatInput input;
  input.messages = messages;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  auto segments = parsed->render(input);
  if (!segments) return "! " + segments.error().message;
  std::string out;
  for (const auto& segment : *segments) out += segment.text;
  return out;
}

inline Value text_value(std::string text, bool from_template = true) {
  return std::make_shared<const TaggedText>(std::move(text), from_template);
}

}  // namespace headrace::coordinator

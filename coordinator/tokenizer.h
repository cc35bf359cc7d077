#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/bpe.h"
#include "coordinator/chat_template.h"
#include "coordinator/client_port.h"
#include "coordinator/control_names.h"
#include "coordinator/pretokenizer.h"
#include "protocol/model_card.h"
#include "protocol/result.h"

namespace headrace::coordinator {

// Text <-> ids for one model: byte-level BPE (the GPT-2 tokenizer family). Immutable; may be used
// from many threads at once.
//
// Control names. Tokens of kind control and user-defined are made from their names only where the
// caller says that the text is the template's (`special`, or the template's own part of a chat).
// Everywhere else their names are letters like any others, so nobody can write a control token into
// a prompt by typing it.
//
// Leading token. If the model wants one, raw text and chats get exactly one bos at the front; one
// that the template, or `special` text, put there already counts.
class Tokenizer {
 public:
  static constexpr size_t kVocabMax = 1u << 21;
  static constexpr size_t kTextBytesMax = 16u << 20;  // of one text to encode

  // Refuses (kInvalid, naming what is wrong) any model but "gpt2", unknown pre-tokenizers, empty or
  // doubled tokens, ids out of range, merges whose result is not a normal token. A chat template
  // that cannot be used is no reason to refuse: see chat_status().
  static Result<Tokenizer> make(TokenizerData data);

  // kInvalid: the text is not UTF-8 (names the byte offset), has more than kTextBytesMax bytes, or
  // holds a byte for which the vocabulary has no token (names both): nothing is dropped silently.
  Result<std::vector<Token>> encode(std::string_view text, bool special) const;

  // The chat as the model's template writes it. Errors: chat_status(), those of
  // ChatTemplate::render and of encode.
  Result<std::vector<Token>> encode_chat(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const;

  // The bytes that the ids stand for; not UTF-8 if the ids end inside a character. Control, unknown
  // and unused tokens give nothing, or their names with `special`. An id out of range: kInvalid.
  Result<std::string> decode(std::span<const Token> ids, bool special = false) const;
  // The same for one id; the bytes live as long as the tokenizer.
  Result<std::string_view> bytes_of(Token id, bool special = false) const;

  size_t vocab() const { return kinds_.size(); }
  Token bos() const { return bos_; }  // -1: none
  Token eos() const { return eos_; }
  const std::vector<Token>& end_tokens() const { return end_tokens_; }
  // Why chats are refused; ok if they are not.
  const Status& chat_status() const { return chat_status_; }

 private:
  Tokenizer() = default;
  Status read_tokens(const TokenizerData& data);
  Status read_merges(const TokenizerData& data);
  Status read_ends(const TokenizerData& data);
  void read_template(const TokenizerData& data);
  Status check_id(Token id, const char* field) const;
  bool hidden(Token id) const;
  Result<std::vector<Token>> encode_segments(std::span<const Segment> segments) const;
  // Appends the ids of text[begin, end), in which no control name is recognised.
  Status encode_letters(std::string_view text, size_t begin, size_t end,
                        BpeMerges::Scratch& scratch, std::vector<Token>& out) const;

  PreTokenizer rule_ = PreTokenizer::kGpt2;
  std::string bytes_;                     // of all tokens, one after the other
  std::vector<uint32_t> begins_;          // by id, and the end: where its bytes lie in bytes_
  std::vector<TokenKind> kinds_;          // by id
  std::array<Token, 256> byte_tokens_{};  // by byte: its token, or -1
  BpeMerges merges_;
  ControlNames controls_;
  Token bos_ = -1;
  Token eos_ = -1;
  std::vector<Token> end_tokens_;
  bool add_bos_ = false;
  std::optional<ChatTemplate> template_;
  Status chat_status_;
};

}  // namespace headrace::coordinator

#include "coordinator/pretokenizer.h"

#include <utf8proc.h>

#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

enum class Class { kSpace, kLetter, kNumber, kOther };

// White_Space of the Unicode character database; it has not grown since Unicode 6.3.
bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

Class class_of(uint32_t c) {
  if (is_white_space(c)) return Class::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Class::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Class::kNumber;
    default:
      return Class::kOther;
  }
}

// End of the run of `wanted` that begins at `at`.
size_t run_end(std::string_view text, size_t at, Class wanted) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (class_of(c.value) != wanted) break;
    at += c.bytes;
  }
  return at;
}

// Length of the contraction that `rest` begins with, or 0.
size_t contraction(std::string_view rest) {
  for (std::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (rest.substr(0, suffix.size()) == suffix) return suffix.size();
  }
  return 0;
}

// GPT-2's rule at `at` in a piece that ends where `text` ends.
size_t gpt2_word_end(std::string_view text, size_t at) {
  if (text[at] == '\'') {
    if (const size_t n = contraction(text.substr(at))) return at + n;
  }
  const size_t start = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  const Class first = class_of(code_point_at(text, start).value);
  if (first != Class::kSpace) return run_end(text, start, first);
  size_t last = at;  // where the last white space of the run begins
  size_t end = at;
  while (end < text.size()) {
    const CodePoint c = code_point_at(text, end);
    if (class_of(c.value) != Class::kSpace) break;
    last = end;
    end += c.bytes;
  }
  if (end == text.size() || last == at) return end;
  return last;
}

}  // namespace

Result<PreTokenizer> pretokenizer_named(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  if (name == "smollm") return PreTokenizer::kSmolLm;
  return error(Errc::kInvalid, "pre-tokenizer '" + std::string(name) +
                                   "' is not supported (supported: gpt-2, smollm)");
}

bool WordSplitter::next(std::string_view& word) {
  if (at_ == text_.size()) return false;
  const size_t end = [&] {
    if (rule_ == PreTokenizer::kGpt2) piece_end_ = text_.size();
    if (at_ < piece_end_) return gpt2_word_end(text_.substr(0, piece_end_), at_);
    const CodePoint first = code_point_at(text_, at_);
    if (class_of(first.value) == Class::kNumber) return at_ + first.bytes;
    piece_end_ = at_;
    while (piece_end_ < text_.size()) {
      const CodePoint c = code_point_at(text_, piece_end_);
      if (class_of(c.value) == Class::kNumber) break;
      piece_end_ += c.bytes;
    }
    return gpt2_word_end(text_.substr(0, piece_end_), at_);
  }();
  word = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

}  // namespace headrace::coordinator

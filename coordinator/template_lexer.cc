#include "coordinator/template_lexer.h"

#include <algorithm>
#include <array>

#include "coordinator/template_value.h"
#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

using Kind = TemplateToken::Kind;

constexpr std::string_view kBlank = " \t\r\n\v\f";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Every line ends in one newline; one at the very end is dropped.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)), s_(source_) {}

  Result<std::vector<TemplateToken>> run() {
    while (status_.ok() && at_ < s_.size()) text_then_tag();
    if (!status_.ok()) return status_;
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool looking_at(std::string_view word, size_t ahead = 0) const {
    return s_.substr(std::min(at_ + ahead, s_.size()), word.size()) == word;
  }
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void fail(const std::string& what) {
    if (status_.ok()) status_ = template_error(line_, what);
  }
  // Moves on, counting lines.
  void advance_to(size_t end) {
    line_ += static_cast<uint32_t>(std::count(s_.begin() + static_cast<ptrdiff_t>(at_),
                                              s_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  void skip_blank() {
    const size_t end = s_.find_first_not_of(kBlank, at_);
    advance_to(end == std::string_view::npos ? s_.size() : end);
  }

  void text_then_tag() {
    size_t tag = at_;
    while (true) {
      tag = s_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= s_.size()) {
        tag = s_.size();
        break;
      }
      const char c = s_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
      ++tag;
    }
    std::string_view text = s_.substr(at_, tag - at_);
    const bool whole = tag == s_.size();
    const char sign = tag + 2 < s_.size() ? s_[tag + 2] : '\0';
    if (!whole && sign == '-') {
      const size_t last = text.find_last_not_of(kBlank);
      text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
    } else if (!whole && sign != '+' && s_[tag + 1] != '{') {
      text = without_indent(text);
    }
    if (!text.empty()) add(Kind::kText, std::string(text));
    advance_to(tag);
    if (whole) return;
    const char kind = s_[tag + 1];
    advance_to(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') {
      comment();
    } else {
      add(kind == '{' ? Kind::kPrintBegin : Kind::kBlockBegin, "");
      inside(kind == '%');
    }
  }

  // lstrip_blocks: drops the blanks since the start of the tag's line.
  std::string_view without_indent(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    const bool line_start = at_ == 0 || s_[at_ - 1] == '\n';
    if (newline == std::string_view::npos && !line_start) return text;
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (text.find_first_not_of(kBlank, begin) != std::string_view::npos) return text;
    return text.substr(0, begin);
  }

  void comment() {
    const size_t end = s_.find("#}", at_);
    if (end == std::string_view::npos) return fail("a comment is never closed");
    const char sign = end > at_ ? s_[end - 1] : '\0';
    advance_to(end + 2);
    after_tag(sign == '-', sign != '+');
  }

  void after_tag(bool strip, bool trim) {
    if (strip) {
      skip_blank();
    } else if (trim && looking_at("\n")) {
      advance_to(at_ + 1);
    }
  }

  // True, and past it, if the tag ends here.
  bool tag_end(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    const bool strip = looking_at("-") && looking_at(close, 1);
    const bool keep = block && looking_at("+") && looking_at(close, 1);
    if (!strip && !keep && !looking_at(close)) return false;
    add(block ? Kind::kBlockEnd : Kind::kPrintEnd, "");
    advance_to(at_ + close.size() + (strip || keep ? 1 : 0));
    after_tag(strip, block && !keep);
    return true;
  }

  // The words of one tag. A closing mark inside brackets is not one.
  void inside(bool block) {
    int open = 0;
    while (status_.ok()) {
      skip_blank();
      if (open == 0 && tag_end(block)) return;
      if (at_ == s_.size()) return fail("a tag is never closed");
      const char c = s_[at_];
      if (is_letter(c)) {
        size_t end = at_;
        while (end < s_.size() && (is_letter(s_[end]) || is_digit(s_[end]))) ++end;
        add(Kind::kName, std::string(s_.substr(at_, end - at_)));
        at_ = end;
      } else if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        open += c == '(' || c == '[' || c == '{';
        open -= c == ')' || c == ']' || c == '}';
        if (open < 0) return fail(std::string("'") + c + "' closes nothing");
        operation();
      }
    }
  }

  void number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < s_.size() && (is_digit(s_[end]) || s_[end] == '_')) ++end;
    };
    digits();
    Kind kind = Kind::kInteger;
    if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) {
      kind = Kind::kFloat;
      ++end;
      digits();
    }
    if (end < s_.size() && is_letter(s_[end])) return fail("a number ends in a letter");
    std::string text(s_.substr(at_, end - at_));
    std::erase(text, '_');
    add(kind, std::move(text));
    at_ = end;
  }

  void operation() {
    constexpr std::array<std::string_view, 24> kOperators = {
        "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  "(",  ")",  "[",  "]", "{", "}", ",", ".", ":", "|"};
    for (const auto op : kOperators) {
      if (!looking_at(op)) continue;
      add(Kind::kOperator, std::string(op));
      at_ += op.size();
      return;
    }
    const CodePoint c = code_point_at(s_, at_);
    fail("'" + std::string(s_.substr(at_, c.bytes)) + "' means nothing here");
  }

  void string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    while (i < s_.size() && s_[i] != quote) {
      if (s_[i] == '\\' && i + 1 < s_.size()) {
        i = escape(i + 1, text);
      } else {
        text += s_[i++];
      }
    }
    if (i >= s_.size()) return fail("a string is never closed");
    add(Kind::kString, std::move(text));
    advance_to(i + 1);
  }

  // Appends what the escape at s_[i] (past the backslash) stands for, as in Python; returns its
  // end.
  size_t escape(size_t i, std::string& text) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = s_[i];
    if (const size_t k = kLetters.find(c); k != std::string_view::npos) {
      text += kMeanings[k];
      return i + 1;
    }
    if (c == '\n') return i + 1;
    uint32_t value = 0;
    if (c >= '0' && c <= '7') {
      const size_t end = std::min(i + 3, s_.size());
      for (; i < end && s_[i] >= '0' && s_[i] <= '7'; ++i) {
        value = value * 8 + static_cast<uint32_t>(s_[i] - '0');
      }
      append_code_point(text, value);
      return i;
    }
    const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (width == 0) {
      text += '\\';
      return i;
    }
    for (size_t k = 1; k <= width; ++k) {
      const int digit = i + k < s_.size() ? hex_digit(s_[i + k]) : -1;
      if (digit < 0) {
        fail(std::string("the escape \\") + c + " lacks hexadecimal digits");
        return i + k;
      }
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail("an escape stands for no character");
    } else {
      append_code_point(text, value);
    }
    return i + 1 + width;
  }

  std::string source_;
  std::string_view s_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  std::vector<TemplateToken> tokens_;
  Status status_;
};

}  // namespace

Result<std::vector<TemplateToken>> lex_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace headrace::coordinator

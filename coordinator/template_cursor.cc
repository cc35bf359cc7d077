#include "coordinator/template_cursor.h"

#include <array>

#include "coordinator/template_limits.h"
#include "coordinator/template_value.h"

namespace headrace::coordinator {

using TokenKind = TemplateToken::Kind;

bool is_reserved(std::string_view name) {
  constexpr std::array<std::string_view, 8> kReserved = {"and", "or", "not",  "in",
                                                         "is",  "if", "else", "for"};
  return std::ranges::find(kReserved, name) != kReserved.end();
}

std::string describe(const TemplateToken& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

TemplateToken TemplateCursor::take() {
  TemplateToken token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TemplateCursor::accept_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

bool TemplateCursor::accept_operator(std::string_view op) {
  if (!is_operator(op)) return false;
  take();
  return true;
}

void TemplateCursor::expect_operator(std::string_view op) {
  if (!accept_operator(op)) {
    fail("expected '" + std::string(op) + "', found " + describe(now()));
  }
}

void TemplateCursor::expect(TokenKind kind) {
  if (is(kind)) {
    take();
  } else {
    fail("expected " + describe({kind, "", 0}) + ", found " + describe(now()));
  }
}

std::string TemplateCursor::expect_variable() {
  if (is(TokenKind::kName) && !is_reserved(now().text)) return take().text;
  fail("expected a name, found " + describe(now()));
  return "";
}

void TemplateCursor::fail(const std::string& what) {
  if (status_.ok()) status_ = template_error(now().line, what);
  at_ = tokens_.size() - 1;
}

bool TemplateCursor::enter() {
  ++depth_;
  if (depth_ <= kTemplateDepthMax) return ok();
  fail("nests deeper than " + std::to_string(kTemplateDepthMax));
  return false;
}

}  // namespace headrace::coordinator

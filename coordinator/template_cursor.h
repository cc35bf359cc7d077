#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/template_lexer.h"

namespace headrace::coordinator {

// The words of a template and the first error found in them. After an error only kEnd is left to
// see, so that every loop over words ends.
class TemplateCursor {
 public:
  explicit TemplateCursor(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& now() const { return tokens_[at_]; }
  const TemplateToken& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(TemplateToken::Kind kind) const { return now().kind == kind; }
  bool is_name(std::string_view name) const {
    return is(TemplateToken::Kind::kName) && now().text == name;
  }
  bool is_operator(std::string_view op) const {
    return is(TemplateToken::Kind::kOperator) && now().text == op;
  }
  TemplateToken take();
  // Takes the word if it is there.
  bool accept_name(std::string_view name);
  bool accept_operator(std::string_view op);
  // Takes the word or fails.
  void expect_operator(std::string_view op);
  void expect(TemplateToken::Kind kind);
  std::string expect_variable();

  void fail(const std::string& what);
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  // Depth of blocks and brackets open now; fails past kTemplateDepthMax.
  bool enter();
  void leave() { --depth_; }

 private:
  std::vector<TemplateToken> tokens_;  // the last one is kEnd
  size_t at_ = 0;
  uint32_t depth_ = 0;
  Status status_;
};

// Words of the language, which no variable can be called.
bool is_reserved(std::string_view name);

// What a word is called in a message.
std::string describe(const TemplateToken& token);

}  // namespace headrace::coordinator

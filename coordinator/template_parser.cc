#include "coordinator/template_parser.h"

#include <algorithm>

#include "coordinator/template_expression.h"
#include "coordinator/template_limits.h"

namespace headrace::coordinator {
namespace {

using TokenKind = TemplateToken::Kind;
using NodeKind = TemplateNode::Kind;

class Parser {
 public:
  explicit Parser(std::vector<TemplateToken> tokens)
      : cursor_(std::move(tokens)), expressions_(cursor_, program_) {}

  Result<TemplateProgram> run() {
    program_.body = body("", {});
    if (!cursor_.ok()) return cursor_.status();
    return std::move(program_);
  }

 private:
  // Up to, and without, a tag whose name is one of `ends`; `opened` is the tag that waits for it.
  std::vector<NodeIndex> body(const std::string& opened, std::vector<std::string_view> ends) {
    std::vector<NodeIndex> nodes;
    while (cursor_.ok()) {
      TemplateNode node;
      node.line = cursor_.now().line;
      if (cursor_.is(TokenKind::kEnd)) {
        if (!ends.empty()) cursor_.fail("'" + opened + "' is never closed");
        break;
      }
      if (cursor_.is(TokenKind::kText)) {
        node.text = cursor_.take().text;
      } else if (cursor_.is(TokenKind::kPrintBegin)) {
        cursor_.take();
        node.kind = NodeKind::kPrint;
        node.expr = expressions_.expression();
        cursor_.expect(TokenKind::kPrintEnd);
      } else {
        if (std::ranges::find(ends, cursor_.peek().text) != ends.end()) break;
        statement(node);
      }
      nodes.push_back(add(std::move(node)));
    }
    return nodes;
  }

  NodeIndex add(TemplateNode node) {
    program_.nodes.push_back(std::move(node));
    return static_cast<NodeIndex>(program_.nodes.size() - 1);
  }

  void statement(TemplateNode& node) {
    cursor_.expect(TokenKind::kBlockBegin);
    if (!cursor_.is(TokenKind::kName)) {
      return cursor_.fail("expected a tag, found " + describe(cursor_.now()));
    }
    const std::string name = cursor_.now().text;
    if (!cursor_.enter()) return;
    if (cursor_.accept_name("if")) {
      if_statement(node);
    } else if (cursor_.accept_name("for")) {
      for_statement(node);
    } else if (cursor_.accept_name("set")) {
      set_statement(node);
    } else {
      cursor_.fail("unknown tag '" + name + "'");
    }
    cursor_.leave();
  }

  // "{% name %}"
  void closing(std::string_view name) {
    cursor_.expect(TokenKind::kBlockBegin);
    cursor_.accept_name(name);
    cursor_.expect(TokenKind::kBlockEnd);
  }

  void if_statement(TemplateNode& node) {
    node.kind = NodeKind::kIf;
    while (cursor_.ok()) {
      if (node.branches.size() == kTemplateItemsMax) {
        return cursor_.fail("more than " + std::to_string(kTemplateItemsMax) + " branches");
      }
      TemplateBranch branch;
      branch.condition = expressions_.expression();
      cursor_.expect(TokenKind::kBlockEnd);
      branch.body = body("if", {"elif", "else", "endif"});
      node.branches.push_back(std::move(branch));
      if (cursor_.peek().text != "elif") break;
      cursor_.take();
      cursor_.take();
    }
    if (cursor_.ok() && cursor_.peek().text == "else") {
      closing("else");
      node.branches.push_back({kNoIndex, body("if", {"endif"})});
    }
    if (cursor_.ok()) closing("endif");
  }

  void for_statement(TemplateNode& node) {
    node.kind = NodeKind::kFor;
    do node.names.push_back(cursor_.expect_variable());
    while (cursor_.accept_operator(",") && node.names.size() < kTemplateItemsMax);
    if (!cursor_.accept_name("in")) {
      return cursor_.fail("expected 'in', found " + describe(cursor_.now()));
    }
    node.expr = expressions_.or_expression();
    if (cursor_.accept_name("if")) node.condition = expressions_.expression();
    if (cursor_.is_name("recursive")) return cursor_.fail("recursive loops are not supported");
    cursor_.expect(TokenKind::kBlockEnd);
    node.branches.push_back({kNoIndex, body("for", {"else", "endfor"})});
    if (cursor_.ok() && cursor_.peek().text == "else") {
      closing("else");
      node.branches.push_back({kNoIndex, body("for", {"endfor"})});
    }
    if (cursor_.ok()) closing("endfor");
  }

  void set_statement(TemplateNode& node) {
    node.kind = NodeKind::kSet;
    node.names.push_back(cursor_.expect_variable());
    if (cursor_.accept_operator(".")) node.names.push_back(cursor_.expect_variable());
    if (cursor_.is(TokenKind::kBlockEnd)) return cursor_.fail("set without '=' is not supported");
    cursor_.expect_operator("=");
    node.expr = expressions_.expression();
    cursor_.expect(TokenKind::kBlockEnd);
  }

  TemplateCursor cursor_;
  TemplateProgram program_;
  TemplateExpressionParser expressions_;
};

}  // namespace

Result<TemplateProgram> parse_template(std::vector<TemplateToken> tokens) {
  return Parser(std::move(tokens)).run();
}

}  // namespace headrace::coordinator

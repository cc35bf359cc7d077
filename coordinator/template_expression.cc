#include "coordinator/template_expression.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "coordinator/template_limits.h"

namespace headrace::coordinator {
namespace {

using TokenKind = TemplateToken::Kind;
using ExprKind = TemplateExpr::Kind;
using CallKind = TemplateCallable::Kind;

const char* kind_word(CallKind kind) {
  constexpr const char* kWords[] = {"filter", "test", "method", "function"};
  return kWords[static_cast<size_t>(kind)];
}

}  // namespace

ExprIndex TemplateExpressionParser::add(TemplateExpr expr) {
  if (!cursor_.ok()) return 0;
  for (const ExprIndex arg : expr.args) {
    if (arg == kNoIndex) continue;
    expr.depth = std::max(expr.depth, program_.exprs[static_cast<size_t>(arg)].depth + 1);
  }
  if (expr.depth > kTemplateDepthMax) {
    cursor_.fail("an expression nests deeper than " + std::to_string(kTemplateDepthMax));
    return 0;
  }
  if (expr.args.size() > 2 * kTemplateItemsMax) {
    cursor_.fail("more than " + std::to_string(kTemplateItemsMax) + " items");
    return 0;
  }
  program_.exprs.push_back(std::move(expr));
  return static_cast<ExprIndex>(program_.exprs.size() - 1);
}

ExprIndex TemplateExpressionParser::binary(ExprKind kind, ExprIndex left, ExprIndex right,
                                           TemplateOp op) {
  TemplateExpr expr;
  expr.kind = kind;
  expr.line = cursor_.now().line;
  expr.ops = {op};
  expr.args = {left, right};
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::literal(uint32_t line, Value value) {
  TemplateExpr expr;
  expr.line = line;
  expr.literal = std::move(value);
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::expression() {
  if (!cursor_.enter()) return 0;
  ExprIndex value = or_expression();
  while (cursor_.ok() && cursor_.is_name("if")) {
    TemplateExpr expr;
    expr.kind = ExprKind::kIf;
    expr.line = cursor_.take().line;
    const ExprIndex condition = or_expression();
    const ExprIndex other = cursor_.accept_name("else") ? expression() : kNoIndex;
    expr.args = {condition, value, other};
    value = add(std::move(expr));
  }
  cursor_.leave();
  return value;
}

ExprIndex TemplateExpressionParser::or_expression() {
  ExprIndex left = and_expression();
  while (cursor_.accept_name("or")) {
    left = binary(ExprKind::kOr, left, and_expression(), TemplateOp::kAdd);
  }
  return left;
}

ExprIndex TemplateExpressionParser::and_expression() {
  ExprIndex left = not_expression();
  while (cursor_.accept_name("and")) {
    left = binary(ExprKind::kAnd, left, not_expression(), TemplateOp::kAdd);
  }
  return left;
}

ExprIndex TemplateExpressionParser::not_expression() {
  if (!cursor_.is_name("not")) return comparison();
  if (!cursor_.enter()) return 0;
  TemplateExpr expr;
  expr.kind = ExprKind::kNot;
  expr.line = cursor_.take().line;
  expr.args = {not_expression()};
  cursor_.leave();
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::comparison() {
  constexpr std::array<std::pair<std::string_view, TemplateOp>, 6> kOps = {{
      {"==", TemplateOp::kEqual},
      {"!=", TemplateOp::kNotEqual},
      {"<", TemplateOp::kLess},
      {"<=", TemplateOp::kLessEqual},
      {">", TemplateOp::kGreater},
      {">=", TemplateOp::kGreaterEqual},
  }};
  TemplateExpr expr;
  expr.kind = ExprKind::kCompare;
  expr.line = cursor_.now().line;
  expr.args = {sum()};
  while (cursor_.ok()) {
    const auto op =
        std::ranges::find_if(kOps, [&](const auto& o) { return cursor_.is_operator(o.first); });
    if (op != kOps.end()) {
      cursor_.take();
      expr.ops.push_back(op->second);
    } else if (cursor_.accept_name("in")) {
      expr.ops.push_back(TemplateOp::kIn);
    } else if (cursor_.is_name("not") && cursor_.peek().text == "in") {
      cursor_.take();
      cursor_.take();
      expr.ops.push_back(TemplateOp::kNotIn);
    } else {
      break;
    }
    expr.args.push_back(sum());
  }
  if (expr.ops.empty()) return expr.args[0];
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::sum() {
  ExprIndex left = concatenation();
  while (cursor_.is_operator("+") || cursor_.is_operator("-")) {
    const auto op = cursor_.take().text == "+" ? TemplateOp::kAdd : TemplateOp::kSubtract;
    left = binary(ExprKind::kBinary, left, concatenation(), op);
  }
  return left;
}

ExprIndex TemplateExpressionParser::concatenation() {
  ExprIndex left = product();
  while (cursor_.accept_operator("~")) {
    left = binary(ExprKind::kBinary, left, product(), TemplateOp::kConcat);
  }
  return left;
}

ExprIndex TemplateExpressionParser::product() {
  constexpr std::array<std::pair<std::string_view, TemplateOp>, 4> kOps = {{
      {"*", TemplateOp::kMultiply},
      {"/", TemplateOp::kDivide},
      {"//", TemplateOp::kFloorDivide},
      {"%", TemplateOp::kModulo},
  }};
  ExprIndex left = unary(true);
  while (cursor_.ok()) {
    const auto op =
        std::ranges::find_if(kOps, [&](const auto& o) { return cursor_.is_operator(o.first); });
    if (op == kOps.end()) break;
    cursor_.take();
    left = binary(ExprKind::kBinary, left, unary(true), op->second);
  }
  return left;
}

ExprIndex TemplateExpressionParser::unary(bool with_filters) {
  if (!cursor_.enter()) return 0;
  ExprIndex value = kNoIndex;
  if (cursor_.is_operator("-")) {
    TemplateExpr expr;
    expr.kind = ExprKind::kNegate;
    expr.line = cursor_.take().line;
    expr.args = {unary(false)};
    value = add(std::move(expr));
  } else if (cursor_.accept_operator("+")) {
    value = unary(false);
  } else {
    value = primary();
  }
  value = postfixes(value);
  if (with_filters) value = filters_and_tests(value);
  cursor_.leave();
  return value;
}

ExprIndex TemplateExpressionParser::primary() {
  const TemplateToken& token = cursor_.now();
  if (token.kind == TokenKind::kName) return name_or_constant();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return number();
  if (token.kind == TokenKind::kString) {
    const uint32_t line = token.line;
    std::string text;
    while (cursor_.is(TokenKind::kString)) text += cursor_.take().text;
    return literal(line, std::make_shared<const TaggedText>(std::move(text), true));
  }
  if (cursor_.is_operator("[")) return list();
  if (cursor_.is_operator("{")) return dict();
  if (cursor_.accept_operator("(")) {
    const ExprIndex inner = expression();
    if (cursor_.is_operator(",")) cursor_.fail("tuples are not supported, use a list");
    cursor_.expect_operator(")");
    return inner;
  }
  cursor_.fail("expected a value, found " + describe(token));
  return 0;
}

ExprIndex TemplateExpressionParser::name_or_constant() {
  if (is_reserved(cursor_.now().text)) {
    cursor_.fail("expected a value, found " + describe(cursor_.now()));
    return 0;
  }
  const TemplateToken token = cursor_.take();
  if (token.text == "true" || token.text == "True") return literal(token.line, true);
  if (token.text == "false" || token.text == "False") return literal(token.line, false);
  if (token.text == "none" || token.text == "None") return literal(token.line, None{});
  if (cursor_.is_operator("(")) {
    if (token.text == "namespace") return namespace_call(token.line);
    return call(CallKind::kFunction, token, kNoIndex);
  }
  TemplateExpr expr;
  expr.kind = ExprKind::kName;
  expr.line = token.line;
  expr.name = token.text;
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::number() {
  const TemplateToken token = cursor_.take();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  int64_t i = 0;
  double d = 0;
  const bool integer = token.kind == TokenKind::kInteger;
  const auto parsed = integer ? std::from_chars(begin, end, i) : std::from_chars(begin, end, d);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    cursor_.fail("the number " + token.text + " is out of range");
    return 0;
  }
  return integer ? literal(token.line, i) : literal(token.line, d);
}

ExprIndex TemplateExpressionParser::list() {
  TemplateExpr expr;
  expr.kind = ExprKind::kList;
  expr.line = cursor_.take().line;
  while (cursor_.ok() && !cursor_.is_operator("]")) {
    expr.args.push_back(expression());
    if (!cursor_.accept_operator(",")) break;
  }
  cursor_.expect_operator("]");
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::dict() {
  TemplateExpr expr;
  expr.kind = ExprKind::kDict;
  expr.line = cursor_.take().line;
  while (cursor_.ok() && !cursor_.is_operator("}")) {
    expr.args.push_back(expression());
    cursor_.expect_operator(":");
    expr.args.push_back(expression());
    if (!cursor_.accept_operator(",")) break;
  }
  cursor_.expect_operator("}");
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::postfixes(ExprIndex base) {
  while (cursor_.ok()) {
    if (cursor_.is_operator("[")) {
      base = subscript(base);
    } else if (cursor_.accept_operator(".")) {
      base = attribute(base);
    } else if (cursor_.is_operator("(")) {
      cursor_.fail("only functions and methods known by name can be called");
    } else {
      break;
    }
  }
  return base;
}

ExprIndex TemplateExpressionParser::subscript(ExprIndex base) {
  TemplateExpr expr;
  expr.line = cursor_.take().line;
  expr.args = {base, kNoIndex, kNoIndex, kNoIndex};
  bool slice = false;
  for (size_t part = 1; part <= 3; ++part) {
    if (!cursor_.is_operator(":") && !cursor_.is_operator("]")) expr.args[part] = expression();
    if (part == 3 || !cursor_.accept_operator(":")) break;
    slice = true;
  }
  if (!slice && expr.args[1] == kNoIndex) cursor_.fail("an index is missing");
  cursor_.expect_operator("]");
  expr.kind = slice ? ExprKind::kSlice : ExprKind::kIndex;
  if (!slice) expr.args.resize(2);
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::attribute(ExprIndex base) {
  const bool index = cursor_.is(TokenKind::kInteger);
  if (!index && !cursor_.is(TokenKind::kName)) {
    cursor_.fail("expected a name after '.', found " + describe(cursor_.now()));
    return 0;
  }
  if (!index && cursor_.peek().kind == TokenKind::kOperator && cursor_.peek().text == "(") {
    return call(CallKind::kMethod, cursor_.take(), base);
  }
  TemplateExpr expr;
  expr.kind = ExprKind::kIndex;
  expr.line = cursor_.now().line;
  const ExprIndex key =
      index ? number()
            : literal(expr.line, std::make_shared<const TaggedText>(cursor_.take().text, true));
  expr.args = {base, key};
  return add(std::move(expr));
}

ExprIndex TemplateExpressionParser::filters_and_tests(ExprIndex base) {
  while (cursor_.ok()) {
    if (cursor_.accept_operator("|")) {
      if (!cursor_.is(TokenKind::kName)) {
        cursor_.fail("expected a filter, found " + describe(cursor_.now()));
        return 0;
      }
      base = call(CallKind::kFilter, cursor_.take(), base);
    } else if (cursor_.accept_name("is")) {
      base = test(base);
    } else {
      break;
    }
  }
  return base;
}

ExprIndex TemplateExpressionParser::test(ExprIndex base) {
  const bool negated = cursor_.accept_name("not");
  if (!cursor_.is(TokenKind::kName)) {
    cursor_.fail("expected a test, found " + describe(cursor_.now()));
    return 0;
  }
  const TemplateToken name = cursor_.take();
  TemplateToken canonical = name;
  if (name.text == "None" || name.text == "True" || name.text == "False") {
    canonical.text[0] = static_cast<char>(canonical.text[0] - 'A' + 'a');
  }
  const ExprIndex made = call(CallKind::kTest, canonical, base);
  if (cursor_.ok()) program_.exprs[static_cast<size_t>(made)].negated = negated;
  return made;
}

ExprIndex TemplateExpressionParser::namespace_call(uint32_t line) {
  TemplateExpr expr;
  expr.kind = ExprKind::kNamespace;
  expr.line = line;
  arguments(expr);
  if (expr.names.size() > kTemplateItemsMax) cursor_.fail("a namespace with too many names");
  if (std::ranges::find(expr.names, "") != expr.names.end()) {
    cursor_.fail("namespace takes named values only");
  }
  return add(std::move(expr));
}

// Reads "(a, b, name=c)" into args and names; a value without a name has the name "".
void TemplateExpressionParser::arguments(TemplateExpr& expr) {
  cursor_.expect_operator("(");
  while (cursor_.ok() && !cursor_.is_operator(")")) {
    std::string name;
    if (cursor_.is(TokenKind::kName) && cursor_.peek().kind == TokenKind::kOperator &&
        cursor_.peek().text == "=") {
      name = cursor_.take().text;
      cursor_.take();
    }
    expr.args.push_back(expression());
    expr.names.push_back(std::move(name));
    if (!cursor_.accept_operator(",")) break;
  }
  cursor_.expect_operator(")");
}

// Puts the arguments where the parameters are; `input` comes first if there is one.
ExprIndex TemplateExpressionParser::call(CallKind kind, const TemplateToken& name,
                                         ExprIndex input) {
  const std::string label = std::string(kind_word(kind)) + " '" + name.text + "'";
  const TemplateCallable* callable = find_callable(kind, name.text);
  if (!callable) {
    cursor_.fail("unknown " + label);
    return 0;
  }
  TemplateExpr given;
  if (cursor_.is_operator("(")) {
    arguments(given);
  } else if (kind == CallKind::kTest && callable->required > 0) {
    given.args = {postfixes(primary())};
    given.names = {""};
  }
  TemplateExpr expr;
  expr.kind = ExprKind::kCall;
  expr.line = name.line;
  expr.callable = callable;
  if (kind != CallKind::kFunction) expr.args.push_back(input);
  return place_arguments(*callable, label, given, std::move(expr));
}

// Appends what was given to the arguments of `expr`, one a parameter.
ExprIndex TemplateExpressionParser::place_arguments(const TemplateCallable& callable,
                                                    const std::string& label,
                                                    const TemplateExpr& given, TemplateExpr expr) {
  const size_t count = callable.parameter_count();
  const auto parameters = std::span(callable.parameters).first(count);
  std::vector<ExprIndex> values(count, kNoIndex);
  for (size_t i = 0; cursor_.ok() && i < given.args.size(); ++i) {
    const std::string& name = given.names[i];
    const auto found = std::ranges::find(parameters, std::string_view(name));
    const auto at = name.empty() ? i : static_cast<size_t>(found - parameters.begin());
    if (at >= count || values[at] != kNoIndex) {
      cursor_.fail(label + " does not take " +
                   (name.empty() ? "so many values" : "'" + name + "'"));
      return 0;
    }
    values[at] = given.args[i];
  }
  for (size_t i = 0; i < callable.required; ++i) {
    if (values[i] == kNoIndex) {
      cursor_.fail(label + " needs a value for '" + std::string(parameters[i]) + "'");
      return 0;
    }
  }
  expr.args.insert(expr.args.end(), values.begin(), values.end());
  return add(std::move(expr));
}

}  // namespace headrace::coordinator

#include "coordinator/template_cursor.h"

#include "coordinator/template_limits.h"
#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

using Kind = TemplateToken::Kind;

namespace {

TemplateCursor cursor_at(std::string_view source) {
  return TemplateCursor(value_of(lex_template(source)));
}

}  // namespace

TEST_CASE("words are taken one by one and the end stays") {
  TemplateCursor c = cursor_at("{{ a + b }}");
  c.expect(Kind::kPrintBegin);
  CHECK(c.is_name("a"));
  CHECK(c.peek().text == "+");
  CHECK(!c.accept_name("b"));
  CHECK(c.accept_name("a"));
  CHECK(c.accept_operator("+"));
  CHECK(c.expect_variable() == "b");
  c.expect(Kind::kPrintEnd);
  CHECK(c.ok());
  for (int i = 0; i < 3; ++i) CHECK(c.take().kind == Kind::kEnd);
}

TEST_CASE("after an error only the end is seen and the error stays") {
  TemplateCursor c = cursor_at("{{ a\n b }}");
  c.take();
  c.take();
  c.expect_operator("=");
  CHECK(c.status().message == "chat template line 2: expected '=', found 'b'");
  CHECK(c.is(Kind::kEnd));
  c.fail("something else");
  CHECK(c.status().message == "chat template line 2: expected '=', found 'b'");
}

TEST_CASE("reserved words are no variables") {
  CHECK(is_reserved("if"));
  CHECK(!is_reserved("iff"));
  TemplateCursor c = cursor_at("{{ else }}");
  c.take();
  CHECK(c.expect_variable() == "");
  CHECK(c.status().message == "chat template line 1: expected a name, found 'else'");
}

TEST_CASE("depth is limited") {
  TemplateCursor c = cursor_at("x");
  for (uint32_t i = 0; i < kTemplateDepthMax; ++i) CHECK(c.enter());
  c.leave();
  CHECK(c.enter());
  CHECK(!c.enter());
  CHECK(!c.ok());
}

TEST_CASE("words have names in messages") {
  CHECK(describe({Kind::kEnd, "", 1}) == "the end of the template");
  CHECK(describe({Kind::kBlockEnd, "", 1}) == "'%}'");
  CHECK(describe({Kind::kString, "x", 1}) == "a string");
}

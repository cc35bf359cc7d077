#include "coordinator/template_lexer.h"

#include <doctest/doctest.h>

#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

namespace {

// The words: texts in angle brackets, tags by their marks.
std::string words(std::string_view source) {
  auto tokens = lex_template(source);
  if (!tokens) return "! " + tokens.error().message;
  std::string out;
  for (const auto& t : *tokens) {
    switch (t.kind) {
      case TemplateToken::Kind::kText:
        out += "<" + t.text + ">";
        break;
      case TemplateToken::Kind::kPrintBegin:
        out += "{{ ";
        break;
      case TemplateToken::Kind::kPrintEnd:
        out += "}}";
        break;
      case TemplateToken::Kind::kBlockBegin:
        out += "{% ";
        break;
      case TemplateToken::Kind::kBlockEnd:
        out += "%}";
        break;
      case TemplateToken::Kind::kString:
        out += "'" + t.text + "' ";
        break;
      case TemplateToken::Kind::kEnd:
        break;
      default:
        out += t.text + " ";
    }
  }
  return out;
}

}  // namespace

TEST_CASE("words of all kinds") {
  CHECK(words("a{{ x.y[1]|f(2.5, \"s\") }}b") == "<a>{{ x . y [ 1 ] | f ( 2.5 , 's' ) }}<b>");
  CHECK(words("{% if a != b and c // 2 <= 1_000 %}") == "{% if a != b and c // 2 <= 1000 %}");
  CHECK(words("{{ {'a': {'b': 1}}['a'] }}") == "{{ { 'a' : { 'b' : 1 } } [ 'a' ] }}");
  CHECK(words("{ % } {x} {") == "<{ % } {x} {>");
  CHECK(words("") == "");
}

TEST_CASE("string escapes are Python's") {
  CHECK(words(R"({{ 'a\n\t\\\'\x41\u00e9\U0001F999\101\q' }})") ==
        "{{ 'a\n\t\\'A\u00e9🦙A\\q' }}");
  CHECK(words("{{ '}}' }}") == "{{ '}}' }}");
  CHECK(words(R"({{ '\uD800' }})").starts_with("! chat template line 1: an escape"));
  CHECK(words(R"({{ '\x4' }})").starts_with("! "));
}

TEST_CASE("white space around tags") {
  CHECK(words("a\n  {% x %}  \n b") == "<a\n>{% x %}<  \n b>");  // blanks keep the newline
  CHECK(words("a\n  {% x %}\n b") == "<a\n>{% x %}< b>");
  CHECK(words("a  {% x %}\n\nb") == "<a  >{% x %}<\nb>");  // not at the start of its line
  CHECK(words("a \n {%- x -%} \n b") == "<a>{% x %}<b>");
  CHECK(words("a\n  {%+ x +%}\nb") == "<a\n  >{% x %}<\nb>");
  CHECK(words("a\n  {{ x }}\nb") == "<a\n  >{{ x }}<\nb>");  // prints keep both
  CHECK(words("a \n{{- x -}}\n b") == "<a>{{ x }}<b>");
  CHECK(words("a\n {# c #}\nb") == "<a\n><b>");
  CHECK(words("a {#- c -#} b") == "<a><b>");
  CHECK(words("  {% x %}") == "{% x %}");
  CHECK(words("{% x %}\n  {% y %}") == "{% x %}{% y %}");
  CHECK(words("{{ x }}  {% y %}") == "{{ x }}<  >{% y %}");
  CHECK(words("a\r\n{% x %}\r\nb\r\n") == "<a\n>{% x %}<b>");
  CHECK(words("a\n\n") == "<a\n>");
}

TEST_CASE("errors name the line") {
  CHECK(words("a\n{{ 'x") == "! chat template line 2: a string is never closed");
  CHECK(words("a\n\n{{ x") == "! chat template line 3: a tag is never closed");
  CHECK(words("{# x") == "! chat template line 1: a comment is never closed");
  CHECK(words("{{ a\n\n ? }}") == "! chat template line 3: '?' means nothing here");
  CHECK(words("{{ é }}") == "! chat template line 1: 'é' means nothing here");
  CHECK(words("{{ ) }}") == "! chat template line 1: ')' closes nothing");
  CHECK(words("{{ 1x }}") == "! chat template line 1: a number ends in a letter");
  CHECK(words("{{ (x }}") == "! chat template line 1: '}' closes nothing");
}

TEST_CASE("any bytes end in words or an error") {
  const std::string alphabet = "{%#}'\"\\-+ \nax1([";
  uint32_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::string source;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      source += alphabet[(state >> 16) % alphabet.size()];
    }
    (void)lex_template(source);
  }
}

#include "coordinator/template_parser.h"

#include "coordinator/template_limits.h"
#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

TEST_CASE("statements") {
  CHECK(rendered("{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}") == "b");
  CHECK(rendered("{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}") == "c");
  CHECK(rendered("{% for i in [1, 2] %}{{ i }}{% else %}none{% endfor %}") == "12");
  CHECK(rendered("{% for i in [] %}{{ i }}{% else %}none{% endfor %}") == "none");
  CHECK(rendered("{% for i in [1, 2, 3] if i != 2 %}{{ i }}{{ loop.length }}{% endfor %}") ==
        "1232");
  CHECK(rendered("{% for a, b in [[1, 2], [3, 4]] %}{{ a }}-{{ b }};{% endfor %}") == "1-2;3-4;");
  CHECK(rendered("{% set x = 1 %}{% set x = x + 1 %}{{ x }}") == "2");
  CHECK(rendered("{% set n = namespace(a=1) %}{% set n.b = 2 %}{{ n.a }}{{ n.b }}") == "12");
}

TEST_CASE("a program says where its nodes come from") {
  const auto program = value_of(parse_template(value_of(lex_template("a\n{{ b }}"))));
  REQUIRE(program.body.size() == 2);
  const auto& print = program.nodes[static_cast<size_t>(program.body[1])];
  CHECK(print.kind == TemplateNode::Kind::kPrint);
  CHECK(print.line == 2);
}

TEST_CASE("unknown and misplaced tags are refused by line and name") {
  CHECK(rendered("\n{% macro f() %}{% endmacro %}") ==
        "! chat template line 2: unknown tag 'macro'");
  CHECK(rendered("{% endfor %}") == "! chat template line 1: unknown tag 'endfor'");
  CHECK(rendered("{% if 1 %}\n{% endfor %}") == "! chat template line 2: unknown tag 'endfor'");
  CHECK(rendered("{% if 1 %}\n") == "! chat template line 1: 'if' is never closed");
  CHECK(rendered("{% for i in x %}{% else %}\nq").find("'for' is never closed") !=
        std::string::npos);
  CHECK(rendered("{% if 1 %}{% else %}{% else %}{% endif %}").find("unknown tag 'else'") !=
        std::string::npos);
}

TEST_CASE("broken statements are refused") {
  for (const char* source : {"{% %}",
                             "{% 1 %}",
                             "{% if %}{% endif %}",
                             "{% if 1 2 %}{% endif %}",
                             "{% for %}{% endfor %}",
                             "{% for i %}{% endfor %}",
                             "{% for i of x %}{% endfor %}",
                             "{% for 1 in x %}{% endfor %}",
                             "{% for i in x recursive %}{% endfor %}",
                             "{% set %}",
                             "{% set x %}y{% endset %}",
                             "{% set x = %}",
                             "{% set if = 1 %}",
                             "{% set a, b = [1, 2] %}",
                             "{% set a['b'] = 1 %}",
                             "{% if 1 %}{% endif 1 %}",
                             "{% include 'x' %}",
                             "{% import os %}",
                             "{% raw %}{% endraw %}",
                             "{% set a.b.c = 1 %}",
                             "{% for i in x %}{% break %}{% endfor %}"}) {
    INFO(source);
    CHECK(rendered(source).starts_with("! chat template line 1: "));
  }
}

TEST_CASE("blocks cannot nest without end") {
  std::string open;
  std::string close;
  for (int i = 0; i < 5000; ++i) {
    open += "{% if 1 %}";
    close += "{% endif %}";
  }
  CHECK(rendered(open + close).find("nests deeper than " + std::to_string(kTemplateDepthMax)) !=
        std::string::npos);
  std::string chain = "{% if 0 %}";
  for (int i = 0; i < 5000; ++i) chain += "{% elif 0 %}";
  CHECK(rendered(chain + "{% endif %}").find(std::to_string(kTemplateItemsMax)) !=
        std::string::npos);
}

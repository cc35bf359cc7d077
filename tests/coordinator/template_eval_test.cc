#include "coordinator/template_eval.h"

#include <chrono>

#include "coordinator/template_limits.h"
#include "coordinator/template_parser.h"
#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

namespace {

bool refused_for(const std::string& source, const std::string& word) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string out = rendered(source);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  INFO(out.substr(0, 200));
  const bool refused = out.starts_with("! ") && out.find(word) != std::string::npos;
  CHECK(refused);
  return refused;
}

}  // namespace

TEST_CASE("the loop variable") {
  CHECK(rendered(
            "{% for c in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
            "{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}") ==
        "1032TrueFalse3;2121FalseFalse3;3210FalseTrue3;");
  CHECK(
      rendered("{% for c in 'abc' %}{{ loop.previtem }}{{ c }}{{ loop.nextitem }} {% endfor %}") ==
      "ab abc bc ");
  CHECK(
      rendered("{% for a in 'xy' %}{% for b in 'pq' %}{{ loop.index }}{% endfor %}{{ loop.index }}"
               "{% endfor %}") == "121122");
}

TEST_CASE("what a loop sets ends with each turn, a namespace does not") {
  CHECK(rendered(
            "{% set x = 0 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}") ==
        "120");
  CHECK(
      rendered("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor "
               "%}{{ n.x }}") == "3");
  CHECK(rendered("{% if true %}{% set x = 1 %}{% endif %}{{ x }}") == "1");
}

TEST_CASE("undefined is empty, false, and an error when looked into") {
  CHECK(
      rendered(
          "[{{ x }}{{ messages[0].nosuch }}]{% if x %}a{% endif %}{% for i in x %}b{% endfor %}") ==
      "[]");
  CHECK(rendered("\n{{ x.y }}") == "! chat template line 2: an undefined value has no 'y'");
}

TEST_CASE("what Python prints for containers is refused") {
  CHECK(rendered("{{ [1] }}") == "! chat template line 1: cannot print a list");
  CHECK(rendered("{{ loop }}{{ {} }}") == "! chat template line 1: cannot print a dictionary");
}

TEST_CASE("misuse is refused") {
  for (const char* source :
       {"{% set x.y = 1 %}", "{% set x = 1 %}{% set x.y = 1 %}", "{% for i in 5 %}{% endfor %}",
        "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{{ {1: 2} }}",
        "{% set n = namespace() %}{% set n.a = n %}", "{{ [namespace()] }}",
        "{{ namespace(a=namespace()) }}"}) {
    INFO(source);
    CHECK(rendered(source).starts_with("! chat template line 1: "));
  }
}

TEST_CASE("budgets end what would not end") {
  refused_for("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
              std::to_string(kTemplateStepsMax));
  refused_for(
      "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
      "{% endfor %}",
      std::to_string(kTemplateWorkMax));
  refused_for("{% set s = 'x' * 1000000 %}{% for i in range(99) %}{{ s }}{% endfor %}",
              std::to_string(kTemplateOutputMax));
  refused_for(
      "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}"
      "{% endfor %}",
      std::to_string(kTemplateWorkMax));
  refused_for(
      "{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l] %}{% endfor %}",
      "nest deeper");
  refused_for(
      "{% set n = namespace(l=[1]) %}{% for i in range(14) %}{% set n.l = [n.l, n.l, n.l, n.l] "
      "%}{% endfor %}{{ n.l | tojson }}",
      "more than");
  refused_for(
      "{% set n = namespace(l=[1]) %}{% for i in range(14) %}{% set n.l = [n.l, n.l, n.l, n.l] "
      "%}{% endfor %}{% set m = namespace(l=[1]) %}{% for i in range(14) %}{% set m.l = [m.l, "
      "m.l, m.l, m.l] %}{% endfor %}{{ n.l == m.l }}",
      "more than");
  refused_for(
      "{% set s = 'ab' * 1000000 %}{% for i in range(99999) %}{% if 'b' * 1000 in s %}{% endif %}"
      "{% endfor %}",
      std::to_string(kTemplateWorkMax));
}

TEST_CASE("text keeps its author through operations") {
  const auto program = value_of(parse_template(value_of(
      lex_template("<{{ u | trim | upper }}>{{ (u ~ '!')[1:-1] }}{{ u.split('b')[0] + '-' }}"))));
  const auto out = value_of(run_template(program, {{"u", text_value(" ab ", false)}}));
  CHECK(out.str() == "<AB>ab  a-");
  std::string marks;
  for (size_t i = 0; i < out.size(); ++i) marks += out.from_template(i) ? 't' : 'u';
  CHECK(marks == "tuutuuuuut");
}

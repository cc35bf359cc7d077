#include "coordinator/template_functions.h"

#include "coordinator/template_limits.h"
#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

using Kind = TemplateCallable::Kind;

TEST_CASE("callables are found by kind and name") {
  REQUIRE(find_callable(Kind::kFilter, "replace"));
  CHECK(find_callable(Kind::kFilter, "replace")->parameter_count() == 2);
  CHECK(find_callable(Kind::kFilter, "replace")->required == 2);
  CHECK(find_callable(Kind::kFilter, "startswith") == nullptr);
  CHECK(find_callable(Kind::kMethod, "startswith") != nullptr);
  CHECK(find_callable(Kind::kMethod, "__class__") == nullptr);
  CHECK(find_callable(Kind::kFunction, "") == nullptr);
}

TEST_CASE("filters") {
  CHECK(rendered("{{ '  a ' | trim }}|{{ 'xax' | trim('x') }}") == "a|a");
  CHECK(rendered("{{ 'aé' | upper }}{{ 'AÉ' | lower }}{{ 'éA' | capitalize }}") == "AÉaéÉa");
  CHECK(
      rendered(
          "{{ 'aé🦙' | length }}{{ [1, 2] | count }}{{ {'a': 1} | length }}{{ x | length }}") ==
      "3210");
  CHECK(rendered("{{ x | default('d') }}{{ '' | default('d') }}{{ '' | d('e', true) }}") == "de");
  CHECK(rendered("{{ none | default('d') }}{{ x | default }}") == "None");
  CHECK(rendered("{{ [1, 'b', 2.5] | join('-') }}{{ 'abc' | join(',') }}{{ [] | join }}") ==
        "1-b-2.5a,b,c");
  CHECK(rendered("{{ 'aXbX' | replace('X', '--') }}") == "a--b--");
  CHECK(rendered("{{ [1, 2] | first }}{{ 'ab' | last }}{{ [] | first is undefined }}") == "1bTrue");
  CHECK(rendered("{{ 1 | string ~ 2 }}{{ 'ab' | list | length }}") == "122");
  CHECK(rendered("{% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %}") == "a1");
  CHECK(rendered("{{ messages[0] | tojson }}") == R"({"role": "user", "content": "hi <b>"})");
  CHECK(rendered("{{ [1] | tojson(indent=1) }}") == "[\n 1\n]");
}

TEST_CASE("methods") {
  CHECK(
      rendered("{{ ' a '.strip() }}{{ ' a'.lstrip() }}{{ 'a '.rstrip() }}{{ 'xa'.lstrip('x') }}") ==
      "aaaa");
  CHECK(rendered("{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('ab') }}") == "TrueFalse");
  CHECK(rendered("{{ 'a,b'.split(',') | join('+') }}{{ ' a  b '.split() | length }}") == "a+b2");
  CHECK(rendered("{{ 'a,b,c'.split(',', 1)[1] }}{{ 'a,b,c'.split(',')[-1] }}") == "b,cc");
  CHECK(rendered("{{ 'ab'.upper() }}{{ 'AB'.lower() }}{{ 'aB'.capitalize() }}") == "ABabAb");
  CHECK(rendered("{{ 'ab'.replace('b', 'c') }}{{ '-'.join(['a', 'b']) }}") == "aca-b");
  CHECK(rendered("{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 3) }}") ==
        "1None3");
  CHECK(rendered("{{ {'a': 1, 'b': 2}.keys() | join }}{{ {'a': 1, 'b': 2}.values() | join }}") ==
        "ab12");
}

TEST_CASE("tests") {
  CHECK(
      rendered("{{ x is defined }}{{ x is not defined }}{{ x is undefined }}{{ none is none }}") ==
      "FalseTrueTrueTrue");
  CHECK(rendered("{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ 1 is iterable }}") ==
        "TrueTrueTrueFalse");
  CHECK(rendered("{{ true is true }}{{ 1 is true }}{{ false is false }}{{ true is boolean }}") ==
        "TrueFalseTrueTrue");
  CHECK(rendered("{{ 1 is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.5 is float }}") ==
        "TrueTrueFalseTrue");
  CHECK(
      rendered("{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}") ==
      "TrueTrueTrueFalse");
  CHECK(rendered("{{ 1 is eq 1 }}{{ 1 is ne(1) }}{{ 'a' is in ['a'] }}{{ 'a' is equalto 'b' }}") ==
        "TrueFalseTrueFalse");
}

TEST_CASE("functions") {
  CHECK(rendered("{{ range(3) | join }}{{ range(1, 3) | join }}{{ range(5, 0, -2) | join }}") ==
        "01212531");
  CHECK(rendered("\n{{ raise_exception('no ' ~ 1) }}") ==
        "! chat template line 2: it refuses the chat: no 1");
  CHECK(rendered("{% if strftime_now is defined %}{{ strftime_now('%d') }}{% endif %}ok") == "ok");
}

TEST_CASE("what does not fit is refused") {
  for (const char* source : {"{{ 1 | length }}",
                             "{{ none | items }}",
                             "{{ 1 | join }}",
                             "{{ 'a' | replace(1, 2) }}",
                             "{{ 1 .strip() }}",
                             "{{ 'a'.split('') }}",
                             "{{ 'a'.strip(1) }}",
                             "{{ range('a') }}",
                             "{{ range(1, 2, 0) }}",
                             "{{ range(99999999) }}",
                             "{{ 1 is divisibleby 0 }}",
                             "{{ 'a' is odd }}",
                             "{{ 'a'.get('b') }}",
                             "{{ {}.get(1) }}",
                             "{{ 1 in 2 }}",
                             "{{ 1 | tojson(ensure_ascii=true) }}",
                             "{{ [1] | tojson(indent='a') }}",
                             "{{ strftime_now('%d') }}",
                             "{{ 'a'.split(',', 'b') }}",
                             "{{ 1 | list }}"}) {
    INFO(source);
    CHECK(rendered(source).starts_with("! chat template line 1: "));
  }
}

TEST_CASE("what is stripped is a small set: text times set would be work without a bound") {
  const std::string many(kTemplateItemsMax + 1, 'b');
  CHECK(rendered("{{ 'bab'.strip('" + many.substr(1) + "') }}") == "a");
  CHECK(rendered("{{ 'bab'.strip('" + many + "') }}").find("strip of more than 256") !=
        std::string::npos);
}

TEST_CASE("a replacement is paid for before it is made") {
  const std::string x = "{% set s = 'a' * 100000 %}{% set s = s | replace('a', s) %}";
  CHECK(rendered(x + "{{ s | length }}").find("bytes") != std::string::npos);
}

#include "coordinator/template_expression.h"

#include "coordinator/template_limits.h"
#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

namespace {

std::string value(const std::string& expression) { return rendered("{{ " + expression + " }}"); }
std::string truth(const std::string& expression) { return value("(" + expression + ") ~ ''"); }

}  // namespace

TEST_CASE("precedence is Jinja's") {
  CHECK(value("1 + 2 * 3") == "7");
  CHECK(value("(1 + 2) * 3") == "9");
  CHECK(value("10 - 2 - 3") == "5");
  CHECK(value("1 ~ 2 + 3 ~ 4") == "1234");
  CHECK(value("1 + 2 ~ 3").starts_with("! "));  // 1 + "23"
  CHECK(value("-2 * 3") == "-6");
  CHECK(value("- 'abc' | length").starts_with("! "));
  CHECK(value("1 + 'abc' | length") == "4");
  CHECK(truth("not 1 == 2") == "True");
  CHECK(truth("not true or true") == "True");
  CHECK(truth("true or false and false") == "True");
  CHECK(truth("1 < 2 < 3") == "True");
  CHECK(truth("3 > 2 > 2") == "False");
  CHECK(truth("'a' not in 'bc' and 'b' in 'bc'") == "True");
  CHECK(value("1 if false else 2 if false else 3") == "3");
  CHECK(value("'x' if false") == "");
  CHECK(truth("x is defined or 1 is defined") == "True");
  CHECK(truth("'abc' | upper == 'ABC'") == "True");
  CHECK(value("'a' 'b' \"c\"") == "abc");
}

TEST_CASE("and, or give the value that decided") {
  CHECK(value("'' or 'b'") == "b");
  CHECK(value("'a' and 'b'") == "b");
  CHECK(value("0 and raise_exception('never')") == "0");
}

TEST_CASE("literals") {
  CHECK(value("[1, 'a', [true, None],] | tojson") == R"([1, "a", [true, null]])");
  CHECK(value("{'a': 1, 'b': {'c': []},} | tojson") == R"({"a": 1, "b": {"c": []}})");
  CHECK(value("9223372036854775807") == "9223372036854775807");
  CHECK(value("9223372036854775808") ==
        "! chat template line 1: the number 9223372036854775808 is out of range");
  CHECK(value("1.50") == "1.5");
  CHECK(value("[]|length") == "0");
}

TEST_CASE("subscripts and slices") {
  CHECK(value("messages[0]['role']") == "user");
  CHECK(value("messages[0].role") == "user");
  CHECK(value("messages.0.role") == "user");
  CHECK(value("'abcde'[1:3] ~ 'abcde'[:2] ~ 'abcde'[3:] ~ 'abcde'[::-1] ~ 'abcde'[::2]") ==
        "bcabdeedcbaace");
  CHECK(value("'abc'[-1] ~ 'abc'[9]") == "c");
}

TEST_CASE("what is unknown is refused by kind and name") {
  CHECK(value("x | nosuch") == "! chat template line 1: unknown filter 'nosuch'");
  CHECK(value("x is nosuch") == "! chat template line 1: unknown test 'nosuch'");
  CHECK(value("x.nosuch()") == "! chat template line 1: unknown method 'nosuch'");
  CHECK(value("nosuch(1)") == "! chat template line 1: unknown function 'nosuch'");
  CHECK(value("''.__class__.mro()") == "! chat template line 1: unknown method 'mro'");
  CHECK(value("x['y']()") ==
        "! chat template line 1: only functions and methods known by name can be called");
  CHECK(rendered("a\n\n{{ x | nosuch }}") == "! chat template line 3: unknown filter 'nosuch'");
}

TEST_CASE("arguments go to their parameters") {
  CHECK(value("x | default(default_value='d')") == "d");
  CHECK(value("'' | default('d', boolean=true)") == "d");
  CHECK(value("'' | default('d', nosuch=1)") ==
        "! chat template line 1: filter 'default' does not take 'nosuch'");
  CHECK(value("'' | trim('a', 'b')") ==
        "! chat template line 1: filter 'trim' does not take so many values");
  CHECK(value("'' | default('d', default_value=1)").starts_with("! "));
  CHECK(value("'a' | replace('b')") ==
        "! chat template line 1: filter 'replace' needs a value for 'new'");
  CHECK(value("namespace(1)") == "! chat template line 1: namespace takes named values only");
}

TEST_CASE("broken expressions are refused") {
  for (const char* source :
       {"",    "1 +",  "(1",  "[1",    "{1}",  "{'a' 1}", "a.",   "a.[0]",
        "a[]", "| b",  "a |", "a is",  "not",  "1 if",    "a b",  "(1, 2)",
        "if",  "a..b", "* 2", "a = 1", "1 in", "is x",    "else", "namespace("}) {
    INFO(source);
    CHECK(value(source).starts_with("! chat template line 1: "));
  }
}

TEST_CASE("nesting is limited, in depth and in length of a chain") {
  const auto nested = [](size_t n, const char* open, const char* close) {
    std::string s;
    for (size_t i = 0; i < n; ++i) s += open;
    s += "1";
    for (size_t i = 0; i < n; ++i) s += close;
    return value(s);
  };
  CHECK(nested(20, "(", ")") == "1");
  CHECK(nested(20, "", "+1") == "21");
  for (const auto& brackets : {std::pair{"(", ")"},
                               {"[", "]"},
                               {"not ", ""},
                               {"", "+1"},
                               {"", "~1"},
                               {"", "|string"},
                               {"", " or 0"},
                               {"", "[0]"},
                               {"{'a':", "}"},
                               {"0 if 0 else ", ""},
                               {"- ", ""}}) {
    INFO(brackets.first << " " << brackets.second);
    CHECK(nested(20000, brackets.first, brackets.second).find(std::to_string(kTemplateDepthMax)) !=
          std::string::npos);
  }
  std::string items = "[";
  for (int i = 0; i < 2000; ++i) items += "1,";
  CHECK(value(items + "]").find(std::to_string(kTemplateItemsMax)) != std::string::npos);
}

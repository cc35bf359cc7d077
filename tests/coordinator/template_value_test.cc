#include "coordinator/template_value.h"

#include "coordinator/template_limits.h"
#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

namespace {

std::string json(const Value& value, int64_t indent = -1) {
  TemplateRun run = new_template_run();
  TaggedText out;
  return print_json(run, value, indent, out) ? out.str() : "! " + run.status.message;
}

std::string printed(const Value& value) {
  TemplateRun run = new_template_run();
  TaggedText out;
  return print(run, value, out) ? out.str() : "! " + run.status.message;
}

}  // namespace

TEST_CASE("values print as in Python") {
  CHECK(printed(true) == "True");
  CHECK(printed(None{}) == "None");
  CHECK(printed(Undefined{}) == "");
  CHECK(printed(int64_t{-7}) == "-7");
  CHECK(printed(3.0) == "3.0");
  CHECK(printed(0.1) == "0.1");
  CHECK(printed(text_value("é")) == "é");
  TemplateRun run = new_template_run();
  CHECK(printed(make_list(run, {})) == "! chat template line 0: cannot print a list");
}

TEST_CASE("truth is as in Python") {
  TemplateRun run = new_template_run();
  for (const Value& v : {Value(Undefined{}), Value(None{}), Value(false), Value(int64_t{0}),
                         Value(0.0), text_value(""), make_list(run, {}), make_dict(run, {})}) {
    CHECK(!truthy(v));
  }
  CHECK(truthy(text_value("0")));
  CHECK(truthy(int64_t{-1}));
  CHECK(truthy(make_list(run, {None{}})));
}

TEST_CASE("equality looks at the text, not at who wrote it") {
  TemplateRun run = new_template_run();
  CHECK(equal(run, text_value("a", true), text_value("a", false)));
  CHECK(equal(run, true, int64_t{1}));
  CHECK(equal(run, int64_t{2}, 2.0));
  CHECK(!equal(run, text_value("1"), int64_t{1}));
  CHECK(!equal(run, None{}, false));
  const Value a = make_dict(run, {{"x", int64_t{1}}, {"y", None{}}});
  const Value b = make_dict(run, {{"y", None{}}, {"x", int64_t{1}}});
  CHECK(equal(run, a, b));
  CHECK(!equal(run, a, make_dict(run, {{"x", int64_t{1}}})));
  CHECK(equal(run, make_list(run, {a}), make_list(run, {b})));
}

TEST_CASE("tojson writes what json.dumps does") {
  TemplateRun run = new_template_run();
  const Value inner = make_list(run, {int64_t{1}, true, None{}, 1.5, text_value("é\"\\\n\x01")});
  const Value v = make_dict(run, {{"a", inner}, {"b", make_list(run, {})}});
  CHECK(json(v) == R"({"a": [1, true, null, 1.5, "é\"\\\n\u0001"], "b": []})");
  CHECK(json(make_list(run, {int64_t{1}, make_dict(run, {{"k", int64_t{2}}})}), 2) ==
        "[\n  1,\n  {\n    \"k\": 2\n  }\n]");
  CHECK(json(Undefined{}) == "! chat template line 0: tojson of an undefined value");
  CHECK(json(v, 1000).starts_with("! "));
}

TEST_CASE("a key given twice has its last value") {
  TemplateRun run = new_template_run();
  const Value v = make_dict(run, {{"a", int64_t{1}}, {"b", None{}}, {"a", int64_t{2}}});
  CHECK(json(v) == R"({"a": 2, "b": null})");
  CHECK(member(v, "c") == nullptr);
}

TEST_CASE("values cannot nest without end") {
  TemplateRun run = new_template_run();
  Value v = make_list(run, {});
  for (uint32_t i = 1; i < kTemplateValueDepthMax; ++i) v = make_list(run, {v});
  CHECK(run.ok());
  v = make_list(run, {v});
  CHECK(!run.ok());
  CHECK(run.status.message.find(std::to_string(kTemplateValueDepthMax)) != std::string::npos);
  TemplateRun other = new_template_run();
  (void)make_list(other, {Value(std::make_shared<NamespaceBody>())});
  CHECK(!other.ok());
}

TEST_CASE("budgets end a run, and the first error stays") {
  TemplateRun run = new_template_run();
  run.steps_left = 2;
  run.work_left = 10;
  run.line = 7;
  CHECK(run.step());
  CHECK(run.step());
  CHECK(!run.step());
  CHECK(run.status.message.find("chat template line 7: more than") == 0);
  const std::string first = run.status.message;
  run.fail("another");
  CHECK(run.status.message == first);
  TemplateRun small = new_template_run();
  small.work_left = 10;
  CHECK(small.work(10));
  CHECK(!small.work(1));
}

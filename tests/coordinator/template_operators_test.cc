#include "coordinator/template_operators.h"

#include "tests/coordinator/text_support.h"

using namespace headrace::coordinator;

namespace {

using Op = TemplateOp;

// The result printed, or "!" and the error.
std::string result(Op op, const Value& a, const Value& b) {
  TemplateRun run = new_template_run();
  const Value v = arithmetic(run, op, a, b);
  TaggedText out;
  return print(run, v, out) ? out.str() : "! " + run.status.message;
}

Value integer(int64_t i) { return i; }

}  // namespace

TEST_CASE("integers divide as in Python") {
  for (int64_t a : {7, -7}) {
    for (int64_t b : {3, -3}) {
      TemplateRun run = new_template_run();
      const Value quotient = arithmetic(run, Op::kFloorDivide, a, b);
      const Value rest = arithmetic(run, Op::kModulo, a, b);
      const int64_t q = *quotient.as<int64_t>();
      const int64_t r = *rest.as<int64_t>();
      CHECK(q * b + r == a);
      CHECK((r == 0 || (r < 0) == (b < 0)));
    }
  }
  CHECK(result(Op::kDivide, integer(7), integer(2)) == "3.5");
  CHECK(result(Op::kDivide, integer(4), integer(2)) == "2.0");
  CHECK(result(Op::kModulo, integer(5), integer(-1)) == "0");
  CHECK(result(Op::kFloorDivide, 7.5, integer(2)) == "3.0");
}

TEST_CASE("what has no result is refused") {
  const std::string line = "! chat template line 0: ";
  CHECK(result(Op::kAdd, integer(INT64_MAX), integer(1)) == line + "an integer is out of range");
  CHECK(result(Op::kMultiply, integer(INT64_MAX), integer(2)) ==
        line + "an integer is out of range");
  CHECK(result(Op::kFloorDivide, integer(INT64_MIN), integer(-1)) ==
        line + "an integer is out of range");
  CHECK(result(Op::kModulo, integer(INT64_MIN), integer(-1)) == "0");
  for (Op op : {Op::kDivide, Op::kFloorDivide, Op::kModulo}) {
    CHECK(result(op, integer(1), integer(0)) == line + "division by zero");
    CHECK(result(op, 1.0, 0.0) == line + "division by zero");
  }
  CHECK(result(Op::kAdd, text_value("a"), integer(1)) ==
        line + "'+' does not work for a string and an integer");
  CHECK(result(Op::kAdd, Undefined{}, text_value("a")) ==
        line + "'+' does not work for an undefined value and a string");
  CHECK(result(Op::kModulo, text_value("%s"), text_value("a")).starts_with("! "));
  TemplateRun run = new_template_run();
  (void)negate(run, integer(INT64_MIN));
  CHECK(!run.ok());
}

TEST_CASE("strings are joined and repeated") {
  CHECK(result(Op::kAdd, text_value("a"), text_value("b")) == "ab");
  CHECK(result(Op::kConcat, integer(1), None{}) == "1None");
  CHECK(result(Op::kMultiply, text_value("ab"), integer(3)) == "ababab");
  CHECK(result(Op::kMultiply, text_value("ab"), integer(-1)) == "");
  CHECK(result(Op::kMultiply, text_value(""), integer(INT64_MAX)) == "");
  CHECK(result(Op::kMultiply, text_value("ab"), integer(INT64_MAX)).starts_with("! "));
}

TEST_CASE("order") {
  TemplateRun run = new_template_run();
  CHECK(compare(run, Op::kLess, integer(1), 1.5));
  CHECK(compare(run, Op::kLessEqual, text_value("a"), text_value("b")));
  CHECK(compare(run, Op::kGreater, true, integer(0)));
  CHECK(!compare(run, Op::kGreaterEqual, integer(1), integer(2)));
  CHECK(compare(run, Op::kNotIn, integer(3), make_list(run, {integer(1)})));
  CHECK(compare(run, Op::kIn, text_value("a"), make_dict(run, {{"a", None{}}})));
  CHECK(run.ok());
  compare(run, Op::kLess, text_value("a"), integer(1));
  CHECK(run.status.message.find("'<' does not work for a string and an integer") !=
        std::string::npos);
}

TEST_CASE("items that are not there are undefined, items of nothing an error") {
  TemplateRun run = new_template_run();
  const Value list = make_list(run, {integer(1), integer(2)});
  CHECK(equal(run, index(run, list, integer(-1)), integer(2)));
  for (int64_t i : {int64_t{2}, int64_t{-3}, INT64_MAX, INT64_MIN}) {
    CHECK(index(run, list, i).is<Undefined>());
    CHECK(index(run, text_value("é"), i).is<Undefined>());
  }
  CHECK(index(run, text_value("aé"), integer(1)).text()->str() == "é");
  CHECK(index(run, list, text_value("x")).is<Undefined>());
  CHECK(run.ok());
  (void)index(run, Undefined{}, text_value("x"));
  CHECK(run.status.message == "chat template line 0: an undefined value has no 'x'");
}

TEST_CASE("slices as in Python") {
  TemplateRun run = new_template_run();
  const auto cut = [&](const Value& b, const Value& e, const Value& s) {
    const Value v = slice(run, text_value("abcde"), b, e, s);
    const Value list = slice(
        run, make_list(run, {integer(0), integer(1), integer(2), integer(3), integer(4)}), b, e, s);
    const auto n = (*list.as<List>())->items.size();
    CHECK(v.text()->size() == n);
    return v.text()->str();
  };
  const Value none = Undefined{};
  CHECK(cut(none, none, none) == "abcde");
  CHECK(cut(integer(1), integer(3), none) == "bc");
  CHECK(cut(integer(-2), none, none) == "de");
  CHECK(cut(none, integer(-2), none) == "abc");
  CHECK(cut(none, none, integer(-1)) == "edcba");
  CHECK(cut(integer(3), integer(0), integer(-2)) == "db");
  CHECK(cut(none, none, integer(2)) == "ace");
  CHECK(cut(integer(9), none, integer(-1)) == "edcba");
  CHECK(cut(integer(-9), integer(2), none) == "ab");
  CHECK(cut(integer(4), integer(1), none) == "");
  CHECK(cut(none, none, integer(INT64_MAX)) == "a");
  CHECK(cut(none, none, integer(INT64_MIN)) == "e");
  CHECK(cut(integer(INT64_MIN), integer(INT64_MAX), None{}) == "abcde");
  CHECK(run.ok());
  (void)slice(run, text_value("a"), none, none, integer(0));
  CHECK(!run.ok());
}

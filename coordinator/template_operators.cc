#include "coordinator/template_operators.h"

#include <algorithm>
#include <cmath>

#include "coordinator/template_functions.h"
#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

std::optional<int64_t> integer(const Value& value) {
  if (const auto* b = value.as<bool>()) return *b;
  if (const auto* i = value.as<int64_t>()) return *i;
  return {};
}

std::optional<double> real(const Value& value) {
  if (const auto i = integer(value)) return static_cast<double>(*i);
  if (const auto* d = value.as<double>()) return *d;
  return {};
}

const char* symbol(TemplateOp op) {
  constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

Value mismatch(TemplateRun& run, TemplateOp op, const Value& a, const Value& b) {
  return run.fail(std::string("'") + symbol(op) + "' does not work for " + kind_name(a) + " and " +
                  kind_name(b));
}

Value integer_arithmetic(TemplateRun& run, TemplateOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case TemplateOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case TemplateOp::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case TemplateOp::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case TemplateOp::kDivide:
      if (b == 0) return run.fail("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    default: {
      if (b == 0) return run.fail("division by zero");
      if (b == -1) {
        overflow = op == TemplateOp::kFloorDivide && __builtin_sub_overflow(int64_t{0}, a, &out);
        break;
      }
      // Rounds down, and the rest has the sign of the divisor.
      const int64_t rest = (a % b != 0 && (a % b < 0) != (b < 0)) ? a % b + b : a % b;
      out = op == TemplateOp::kModulo ? rest : a / b - (a % b != rest ? 1 : 0);
    }
  }
  if (overflow) return run.fail("an integer is out of range");
  return out;
}

Value real_arithmetic(TemplateRun& run, TemplateOp op, double a, double b) {
  switch (op) {
    case TemplateOp::kAdd:
      return a + b;
    case TemplateOp::kSubtract:
      return a - b;
    case TemplateOp::kMultiply:
      return a * b;
    default:
      break;
  }
  if (b == 0) return run.fail("division by zero");
  if (op == TemplateOp::kDivide) return a / b;
  const double down = std::floor(a / b);
  return op == TemplateOp::kFloorDivide ? down : a - down * b;
}

Value repeat(TemplateRun& run, const TaggedText& text, int64_t times) {
  TaggedText out;
  for (int64_t i = 0; i < times && text.size() > 0; ++i) {
    if (!run.step() || !run.work(text.size())) return {};
    out.append(text);
  }
  return make_text(run, std::move(out));
}

Value concatenated(TemplateRun& run, const Value& a, const Value& b) {
  TaggedText out;
  if (!print(run, a, out) || !print(run, b, out)) return {};
  return make_text(run, std::move(out));
}

// As Python clamps the bounds of a slice.
int64_t bound(std::optional<int64_t> given, int64_t otherwise, int64_t size, bool down) {
  if (!given) return otherwise;
  const int64_t low = down ? -1 : 0;
  const int64_t high = down ? size - 1 : size;
  return std::clamp(*given < 0 ? *given + size : *given, low, high);
}

struct SliceBounds {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
};

bool read_bounds(TemplateRun& run, const Value* parts[3], int64_t size, SliceBounds& out) {
  std::optional<int64_t> given[3];
  for (int i = 0; i < 3; ++i) {
    given[i] = integer(*parts[i]);
    if (!given[i] && !parts[i]->is<Undefined>() && !parts[i]->is<None>()) {
      run.fail(std::string("a slice needs integers, not ") + kind_name(*parts[i]));
      return false;
    }
  }
  out.step = given[2].value_or(1);
  if (out.step == 0) {
    run.fail("a slice with a step of 0");
    return false;
  }
  const bool down = out.step < 0;
  // Lists are never longer than this, and it keeps the additions below in range.
  out.step = std::clamp<int64_t>(out.step, -(int64_t{1} << 40), int64_t{1} << 40);
  out.begin = bound(given[0], down ? size - 1 : 0, size, down);
  out.end = bound(given[1], down ? -1 : size, size, down);
  return true;
}

}  // namespace

Value arithmetic(TemplateRun& run, TemplateOp op, const Value& a, const Value& b) {
  if (!run.ok()) return {};
  if (op == TemplateOp::kConcat) return concatenated(run, a, b);
  const auto i = integer(a);
  const auto j = integer(b);
  if (i && j) return integer_arithmetic(run, op, *i, *j);
  const auto x = real(a);
  const auto y = real(b);
  if (x && y) return real_arithmetic(run, op, *x, *y);
  const bool add = op == TemplateOp::kAdd;
  if (add && a.is<Text>() && b.is<Text>()) return concatenated(run, a, b);
  if (op == TemplateOp::kMultiply && a.is<Text>() && j) return repeat(run, *a.text(), *j);
  if (op == TemplateOp::kMultiply && b.is<Text>() && i) return repeat(run, *b.text(), *i);
  if (add && a.is<List>() && b.is<List>()) {
    std::vector<Value> items;
    std::vector<Value> more;
    if (!items_of(run, a, items) || !items_of(run, b, more)) return {};
    items.insert(items.end(), more.begin(), more.end());
    return make_list(run, std::move(items));
  }
  return mismatch(run, op, a, b);
}

bool compare(TemplateRun& run, TemplateOp op, const Value& a, const Value& b) {
  switch (op) {
    case TemplateOp::kEqual:
      return equal(run, a, b);
    case TemplateOp::kNotEqual:
      return !equal(run, a, b);
    case TemplateOp::kIn:
      return contains(run, b, a);
    case TemplateOp::kNotIn:
      return !contains(run, b, a);
    default:
      break;
  }
  const auto ordered = [op](const auto& x, const auto& y) {
    switch (op) {
      case TemplateOp::kLess:
        return x < y;
      case TemplateOp::kLessEqual:
        return x <= y;
      case TemplateOp::kGreater:
        return x > y;
      default:
        return x >= y;
    }
  };
  const auto i = integer(a);
  const auto j = integer(b);
  if (i && j) return ordered(*i, *j);
  const auto x = real(a);
  const auto y = real(b);
  if (x && y) return ordered(*x, *y);
  if (a.is<Text>() && b.is<Text>()) {
    const std::string& s = a.text()->str();
    const std::string& t = b.text()->str();
    return run.work(std::min(s.size(), t.size())) && ordered(s, t);
  }
  mismatch(run, op, a, b);
  return false;
}

Value negate(TemplateRun& run, const Value& value) {
  if (const auto i = integer(value)) {
    return integer_arithmetic(run, TemplateOp::kSubtract, 0, *i);
  }
  if (const auto* d = value.as<double>()) return -*d;
  return run.fail(std::string("'-' does not work for ") + kind_name(value));
}

Value index(TemplateRun& run, const Value& container, const Value& key) {
  if (!run.ok()) return {};
  const auto i = integer(key);
  if (const auto* list = container.as<List>(); list && i) {
    const auto size = static_cast<int64_t>((*list)->items.size());
    const int64_t at = *i < 0 ? *i + size : *i;
    return at >= 0 && at < size ? (*list)->items[static_cast<size_t>(at)] : Value();
  }
  if (const auto* text = container.text(); text && i) {
    if (!run.work(text->size())) return {};
    const std::string& s = text->str();
    const auto size = static_cast<int64_t>(count_code_points(s));
    const int64_t place = *i < 0 ? *i + size : *i;
    if (place < 0 || place >= size) return {};
    const size_t at = bytes_of_code_points(s, static_cast<size_t>(place));
    return make_text(run, text->slice(at, at + code_point_at(s, at).bytes));
  }
  if (container.is<Undefined>() || container.is<None>()) {
    const auto* name = key.text();
    return run.fail(std::string(kind_name(container)) + " has no " +
                    (name ? "'" + name->str() + "'" : std::string("items")));
  }
  if (const auto* name = key.text()) {
    if (const Value* found = member(container, name->str())) return *found;
  }
  return {};
}

Value slice(TemplateRun& run, const Value& container, const Value& begin, const Value& end,
            const Value& step) {
  if (!run.ok()) return {};
  const Value* parts[3] = {&begin, &end, &step};
  SliceBounds bounds;
  if (const auto* text = container.text()) {
    const std::string& s = text->str();
    if (!run.work(s.size())) return {};
    if (!read_bounds(run, parts, static_cast<int64_t>(count_code_points(s)), bounds)) return {};
    if (bounds.step == 1) {
      if (bounds.begin >= bounds.end) return make_text(run, "", true);
      return make_text(run, text->slice(bytes_of_code_points(s, static_cast<size_t>(bounds.begin)),
                                        bytes_of_code_points(s, static_cast<size_t>(bounds.end))));
    }
  } else if (!container.is<List>()) {
    return run.fail(std::string("cannot slice ") + kind_name(container));
  }
  std::vector<Value> items;
  if (!items_of(run, container, items)) return {};
  if (!read_bounds(run, parts, static_cast<int64_t>(items.size()), bounds)) return {};
  std::vector<Value> out;
  const bool down = bounds.step < 0;
  for (int64_t i = bounds.begin; down ? i > bounds.end : i < bounds.end; i += bounds.step) {
    out.push_back(items[static_cast<size_t>(i)]);
  }
  if (container.is<List>()) return make_list(run, std::move(out));
  TaggedText joined;
  for (const Value& character : out) print(run, character, joined);
  return make_text(run, std::move(joined));
}

}  // namespace headrace::coordinator

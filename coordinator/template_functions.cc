#include "coordinator/template_functions.h"

#include <algorithm>

#include "coordinator/template_limits.h"
#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

using Args = std::span<const Value>;

// str(value) as filters see their input: an undefined value is empty.
bool text_of(TemplateRun& run, const Value& value, TaggedText& out) {
  return print(run, value, out) && run.work(out.size());
}

// The string that a method or parameter needs.
const TaggedText* need_text(TemplateRun& run, const Value& value, const char* what) {
  if (const auto* text = value.text()) return text;
  run.fail(std::string(what) + " needs a string, not " + kind_name(value));
  return nullptr;
}

Value fail_kind(TemplateRun& run, const char* what, const Value& value) {
  return run.fail(std::string(what) + " of " + kind_name(value));
}

Value stripped(TemplateRun& run, const TaggedText& text, const Value& characters, bool left,
               bool right) {
  if (characters.is<Undefined>() || characters.is<None>()) {
    return make_text(run, strip(text, nullptr, left, right));
  }
  const TaggedText* set = need_text(run, characters, "strip");
  if (!set) return {};
  // Each character of the text is looked up in the set.
  if (set->size() > kTemplateItemsMax) {
    return run.fail("strip of more than " + std::to_string(kTemplateItemsMax) + " characters");
  }
  return make_text(run, strip(text, &set->str(), left, right));
}

template <bool kLeft, bool kRight>
Value method_strip(TemplateRun& run, Args args) {
  const TaggedText* text = need_text(run, args[0], "strip");
  return text ? stripped(run, *text, args[1], kLeft, kRight) : Value();
}

Value filter_trim(TemplateRun& run, Args args) {
  TaggedText text;
  return text_of(run, args[0], text) ? stripped(run, text, args[1], true, true) : Value();
}

template <LetterCase kCase>
Value change_case(TemplateRun& run, Args args) {
  TaggedText text;
  return text_of(run, args[0], text) ? make_text(run, with_case(text, kCase)) : Value();
}

Value filter_string(TemplateRun& run, Args args) {
  if (args[0].is<Text>()) return args[0];
  TaggedText text;
  return text_of(run, args[0], text) ? make_text(run, std::move(text)) : Value();
}

Value filter_length(TemplateRun& run, Args args) {
  const Value& v = args[0];
  if (const auto* list = v.as<List>()) return static_cast<int64_t>((*list)->items.size());
  if (const auto* dict = v.as<Dict>()) return static_cast<int64_t>((*dict)->items.size());
  if (v.is<Undefined>()) return int64_t{0};
  const auto* text = v.text();
  if (!text) return fail_kind(run, "length", v);
  return run.work(text->size()) ? Value(static_cast<int64_t>(count_code_points(text->str())))
                                : Value();
}

Value filter_default(TemplateRun& run, Args args) {
  const bool replace_it = args[0].is<Undefined>() || (truthy(args[2]) && !truthy(args[0]));
  if (!replace_it) return args[0];
  return args[1].is<Undefined>() ? make_text(run, "", true) : args[1];
}

Value joined(TemplateRun& run, const Value& list, const TaggedText& separator) {
  std::vector<Value> items;
  if (!items_of(run, list, items)) return {};
  TaggedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    if (!run.step() || !run.work(separator.size()) || !text_of(run, items[i], out)) return {};
  }
  return make_text(run, std::move(out));
}

Value filter_join(TemplateRun& run, Args args) {
  if (args[1].is<Undefined>()) return joined(run, args[0], TaggedText());
  const TaggedText* separator = need_text(run, args[1], "join");
  return separator ? joined(run, args[0], *separator) : Value();
}

Value method_join(TemplateRun& run, Args args) {
  const TaggedText* separator = need_text(run, args[0], "join");
  return separator ? joined(run, args[1], *separator) : Value();
}

Value filter_tojson(TemplateRun& run, Args args) {
  if (truthy(args[1])) return run.fail("tojson with ensure_ascii is not supported");
  const auto* indent = args[2].as<int64_t>();
  if (!indent && !args[2].is<Undefined>() && !args[2].is<None>()) {
    return run.fail("tojson needs a number as indent");
  }
  TaggedText out;
  if (!print_json(run, args[0], indent ? std::max<int64_t>(*indent, 0) : -1, out)) return {};
  return make_text(run, std::move(out));
}

Value replace_text(TemplateRun& run, Args args) {
  TaggedText text;
  if (!text_of(run, args[0], text)) return {};
  const TaggedText* from = need_text(run, args[1], "replace");
  const TaggedText* to = need_text(run, args[2], "replace");
  if (!from || !to) return {};
  // Paid for before it is made: a short text may become a very long one.
  if (!run.work(replaced_bytes(text, from->str(), to->size()))) return {};
  return make_text(run, replace(text, from->str(), *to));
}

template <bool kFirst>
Value filter_end(TemplateRun& run, Args args) {
  std::vector<Value> items;
  if (!items_of(run, args[0], items) || items.empty()) return {};
  return kFirst ? items.front() : items.back();
}

Value filter_list(TemplateRun& run, Args args) {
  std::vector<Value> items;
  return items_of(run, args[0], items) ? make_list(run, std::move(items)) : Value();
}

enum class Part { kKeys, kValues, kPairs };

template <Part kPart>
Value dict_part(TemplateRun& run, Args args) {
  const auto* dict = args[0].as<Dict>();
  if (!dict) return fail_kind(run, "items", args[0]);
  std::vector<Value> out;
  for (const auto& [key, item] : (*dict)->items) {
    if (kPart == Part::kValues) {
      out.push_back(item);
      continue;
    }
    Value name = make_text(run, key, false);
    out.push_back(kPart == Part::kKeys ? name : make_list(run, {name, item}));
  }
  return make_list(run, std::move(out));
}

Value method_get(TemplateRun& run, Args args) {
  if (!args[0].is<Dict>()) return fail_kind(run, "get", args[0]);
  const TaggedText* key = need_text(run, args[1], "get");
  if (!key) return {};
  if (const Value* found = member(args[0], key->str())) return *found;
  return args[2].is<Undefined>() ? Value(None{}) : args[2];
}

template <bool kStart>
Value method_with(TemplateRun& run, Args args) {
  const TaggedText* text = need_text(run, args[0], "startswith or endswith");
  const TaggedText* part = need_text(run, args[1], "startswith or endswith");
  if (!text || !part || !run.work(part->size())) return {};
  return kStart ? text->str().starts_with(part->str()) : text->str().ends_with(part->str());
}

Value method_split(TemplateRun& run, Args args) {
  const TaggedText* text = need_text(run, args[0], "split");
  if (!text) return {};
  const TaggedText* separator = nullptr;
  if (!args[1].is<Undefined>() && !args[1].is<None>()) {
    separator = need_text(run, args[1], "split");
    if (!separator) return {};
    if (separator->size() == 0) return run.fail("split at an empty separator");
  }
  const auto* most = args[2].as<int64_t>();
  if (!most && !args[2].is<Undefined>()) return run.fail("split needs a number of splits");
  if (!run.work(text->size())) return {};
  std::vector<Value> parts;
  for (auto& part : split(*text, separator ? &separator->str() : nullptr, most ? *most : -1)) {
    parts.push_back(make_text(run, std::move(part)));
  }
  return make_list(run, std::move(parts));
}

template <class... Ts>
Value test_kind(TemplateRun&, Args args) {
  return (args[0].is<Ts>() || ...);
}
Value test_defined(TemplateRun&, Args args) { return !args[0].is<Undefined>(); }
template <bool kWanted>
Value test_bool(TemplateRun&, Args args) {
  const auto* b = args[0].as<bool>();
  return b && *b == kWanted;
}
template <bool kWanted>
Value test_equal(TemplateRun& run, Args args) {
  return equal(run, args[0], args[1]) == kWanted;
}
Value test_in(TemplateRun& run, Args args) { return contains(run, args[1], args[0]); }

Value is_multiple(TemplateRun& run, const Value& value, int64_t divisor, int64_t rest) {
  const auto* i = value.as<int64_t>();
  if (!i || divisor == 0) return run.fail("a test of divisibility needs integers, not zero");
  return divisor == -1 || std::abs(*i % divisor) == rest;
}
Value test_odd(TemplateRun& run, Args args) { return is_multiple(run, args[0], 2, 1); }
Value test_even(TemplateRun& run, Args args) { return is_multiple(run, args[0], 2, 0); }
Value test_divisible(TemplateRun& run, Args args) {
  const auto* by = args[1].as<int64_t>();
  return is_multiple(run, args[0], by ? *by : 0, 0);
}

Value function_raise(TemplateRun& run, Args args) {
  TaggedText why;
  if (!text_of(run, args[0], why)) return {};
  return run.fail("it refuses the chat: " + why.str());
}

Value function_range(TemplateRun& run, Args args) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t given = args[1].is<Undefined>() ? 1 : args[2].is<Undefined>() ? 2 : 3;
  for (size_t i = 0; i < given; ++i) {
    const auto* n = args[i].as<int64_t>();
    if (!n) return run.fail("range needs integers");
    bounds[given == 1 ? 1 : i] = *n;
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return run.fail("range with a step of 0");
  std::vector<Value> out;
  for (__int128 i = begin; step > 0 ? i < end : i > end; i += step) {
    if (out.size() == kTemplateRangeMax) {
      return run.fail("range with more than " + std::to_string(kTemplateRangeMax) + " numbers");
    }
    out.emplace_back(static_cast<int64_t>(i));
  }
  return make_list(run, std::move(out));
}

Value function_time(TemplateRun& run, Args) { return run.fail("strftime_now: no clock here"); }

using Kind = TemplateCallable::Kind;

constexpr TemplateCallable kCallables[] = {
    {Kind::kFilter, "trim", filter_trim, {"chars"}},
    {Kind::kFilter, "upper", change_case<LetterCase::kUpper>},
    {Kind::kFilter, "lower", change_case<LetterCase::kLower>},
    {Kind::kFilter, "capitalize", change_case<LetterCase::kCapital>},
    {Kind::kFilter, "string", filter_string},
    {Kind::kFilter, "safe", filter_string},
    {Kind::kFilter, "length", filter_length},
    {Kind::kFilter, "count", filter_length},
    {Kind::kFilter, "default", filter_default, {"default_value", "boolean"}},
    {Kind::kFilter, "d", filter_default, {"default_value", "boolean"}},
    {Kind::kFilter, "join", filter_join, {"d"}},
    {Kind::kFilter, "tojson", filter_tojson, {"ensure_ascii", "indent"}},
    {Kind::kFilter, "replace", replace_text, {"old", "new"}, 2},
    {Kind::kFilter, "first", filter_end<true>},
    {Kind::kFilter, "last", filter_end<false>},
    {Kind::kFilter, "list", filter_list},
    {Kind::kFilter, "items", dict_part<Part::kPairs>},
    {Kind::kMethod, "strip", method_strip<true, true>, {"chars"}},
    {Kind::kMethod, "lstrip", method_strip<true, false>, {"chars"}},
    {Kind::kMethod, "rstrip", method_strip<false, true>, {"chars"}},
    {Kind::kMethod, "upper", change_case<LetterCase::kUpper>},
    {Kind::kMethod, "lower", change_case<LetterCase::kLower>},
    {Kind::kMethod, "capitalize", change_case<LetterCase::kCapital>},
    {Kind::kMethod, "replace", replace_text, {"old", "new"}, 2},
    {Kind::kMethod, "startswith", method_with<true>, {"prefix"}, 1},
    {Kind::kMethod, "endswith", method_with<false>, {"suffix"}, 1},
    {Kind::kMethod, "split", method_split, {"sep", "maxsplit"}},
    {Kind::kMethod, "join", method_join, {"iterable"}, 1},
    {Kind::kMethod, "items", dict_part<Part::kPairs>},
    {Kind::kMethod, "keys", dict_part<Part::kKeys>},
    {Kind::kMethod, "values", dict_part<Part::kValues>},
    {Kind::kMethod, "get", method_get, {"key", "default"}, 1},
    {Kind::kTest, "defined", test_defined},
    {Kind::kTest, "undefined", test_kind<Undefined>},
    {Kind::kTest, "none", test_kind<None>},
    {Kind::kTest, "string", test_kind<Text>},
    {Kind::kTest, "mapping", test_kind<Dict>},
    {Kind::kTest, "sequence", test_kind<Text, List, Dict, Undefined>},
    {Kind::kTest, "iterable", test_kind<Text, List, Dict, Undefined>},
    {Kind::kTest, "number", test_kind<bool, int64_t, double>},
    {Kind::kTest, "integer", test_kind<int64_t>},
    {Kind::kTest, "float", test_kind<double>},
    {Kind::kTest, "boolean", test_kind<bool>},
    {Kind::kTest, "true", test_bool<true>},
    {Kind::kTest, "false", test_bool<false>},
    {Kind::kTest, "equalto", test_equal<true>, {"other"}, 1},
    {Kind::kTest, "eq", test_equal<true>, {"other"}, 1},
    {Kind::kTest, "ne", test_equal<false>, {"other"}, 1},
    {Kind::kTest, "in", test_in, {"seq"}, 1},
    {Kind::kTest, "odd", test_odd},
    {Kind::kTest, "even", test_even},
    {Kind::kTest, "divisibleby", test_divisible, {"num"}, 1},
    {Kind::kFunction, "raise_exception", function_raise, {"message"}, 1},
    {Kind::kFunction, "range", function_range, {"start", "stop", "step"}, 1},
    {Kind::kFunction, "strftime_now", function_time, {"format"}, 1},
};

}  // namespace

const TemplateCallable* find_callable(TemplateCallable::Kind kind, std::string_view name) {
  const auto it = std::ranges::find_if(
      kCallables, [&](const auto& c) { return c.kind == kind && c.name == name; });
  return it == std::end(kCallables) ? nullptr : it;
}

bool items_of(TemplateRun& run, const Value& value, std::vector<Value>& out) {
  if (const auto* list = value.as<List>()) {
    if (!run.work((*list)->items.size() * sizeof(Value))) return false;
    out = (*list)->items;
    return true;
  }
  if (const auto* dict = value.as<Dict>()) {
    for (const auto& [key, item] : (*dict)->items) out.push_back(make_text(run, key, false));
    return run.ok();
  }
  if (const auto* text = value.text()) {
    const std::string& s = text->str();
    // A value of its own for each character: counted with what it takes in memory.
    if (!run.work(s.size() * (sizeof(Value) + sizeof(TaggedText)))) return false;
    for (size_t at = 0; at < s.size();) {
      const size_t end = at + code_point_at(s, at).bytes;
      out.push_back(make_text(run, text->slice(at, end)));
      at = end;
    }
    return run.ok();
  }
  if (value.is<Undefined>()) return run.ok();
  run.fail(std::string("cannot loop over ") + kind_name(value));
  return false;
}

bool contains(TemplateRun& run, const Value& haystack, const Value& needle) {
  if (const auto* list = haystack.as<List>()) {
    return run.work((*list)->items.size() * sizeof(Value)) &&
           std::ranges::any_of((*list)->items,
                               [&](const Value& item) { return equal(run, item, needle); });
  }
  if (haystack.is<Undefined>()) return false;
  const auto* part = needle.text();
  if (part && haystack.is<Dict>()) return member(haystack, part->str()) != nullptr;
  if (part && haystack.is<Text>()) {
    const std::string& text = haystack.text()->str();
    return run.work(text.size()) && find_text(text, part->str(), 0) != std::string::npos;
  }
  run.fail(std::string("'in' does not work for ") + kind_name(needle) + " and " +
           kind_name(haystack));
  return false;
}

}  // namespace headrace::coordinator

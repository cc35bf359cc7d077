#include "coordinator/template_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "coordinator/template_limits.h"

namespace headrace::coordinator {
namespace {

constexpr int64_t kIndentMax = 16;

uint32_t depth_of(const Value& value) {
  if (const auto* list = value.as<List>()) return (*list)->depth;
  if (const auto* dict = value.as<Dict>()) return (*dict)->depth;
  return 0;
}

bool number(const Value& value, double& out) {
  if (const auto* b = value.as<bool>()) return out = *b, true;
  if (const auto* i = value.as<int64_t>()) return out = static_cast<double>(*i), true;
  if (const auto* d = value.as<double>()) return out = *d, true;
  return false;
}

// Python's repr of a float, apart from the form of its exponent.
std::string digits(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string out(buffer.data(), end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

void quote_json(const TaggedText& text, TaggedText& out) {
  out.append("\"", true);
  size_t at = 0;
  for (const auto& run : text.runs()) {
    std::string escaped;
    for (; at < run.end; ++at) {
      const char c = text.str()[at];
      switch (c) {
        case '"':
          escaped += "\\\"";
          break;
        case '\\':
          escaped += "\\\\";
          break;
        case '\n':
          escaped += "\\n";
          break;
        case '\r':
          escaped += "\\r";
          break;
        case '\t':
          escaped += "\\t";
          break;
        case '\b':
          escaped += "\\b";
          break;
        case '\f':
          escaped += "\\f";
          break;
        default:
          if (static_cast<uint8_t>(c) < 0x20) {
            constexpr char kHex[] = "0123456789abcdef";
            escaped += std::string("\\u00") + kHex[c >> 4] + kHex[c & 15];
          } else {
            escaped += c;
          }
      }
    }
    out.append(escaped, run.from_template);
  }
  out.append("\"", true);
}

struct JsonWriter {
  TemplateRun& run;
  int64_t indent;
  TaggedText& out;

  void line_break(int64_t depth) {
    if (indent >= 0) out.append("\n" + std::string(static_cast<size_t>(indent * depth), ' '), true);
  }
  void separator(bool first, int64_t depth) {
    if (!first) out.append(indent >= 0 ? "," : ", ", true);
    line_break(depth);
  }
  // `depth` is bounded by the depth of values.
  bool write(const Value& value, int64_t depth) {
    if (!run.step()) return false;
    const size_t before = out.size();
    if (const auto* text = value.text()) {
      quote_json(*text, out);
    } else if (const auto* list = value.as<List>()) {
      out.append("[", true);
      bool first = true;
      for (const Value& item : (*list)->items) {
        separator(first, depth + 1);
        first = false;
        if (!write(item, depth + 1)) return false;
      }
      if (!first) line_break(depth);
      out.append("]", true);
    } else if (const auto* dict = value.as<Dict>()) {
      out.append("{", true);
      bool first = true;
      for (const auto& [key, item] : (*dict)->items) {
        separator(first, depth + 1);
        first = false;
        quote_json(TaggedText(key, false), out);
        out.append(": ", true);
        if (!write(item, depth + 1)) return false;
      }
      if (!first) line_break(depth);
      out.append("}", true);
    } else if (value.is<bool>()) {
      out.append(*value.as<bool>() ? "true" : "false", true);
    } else if (value.is<None>()) {
      out.append("null", true);
    } else if (value.is<int64_t>() || value.is<double>()) {
      if (!print(run, value, out)) return false;
    } else {
      run.fail(std::string("tojson of ") + kind_name(value));
      return false;
    }
    return depth > 0 || run.work(out.size() - before);
  }
};

}  // namespace

Status template_error(uint32_t line, const std::string& what) {
  return error(Errc::kInvalid, "chat template line " + std::to_string(line) + ": " + what);
}

Value TemplateRun::fail(const std::string& what) {
  if (status.ok()) status = template_error(line, what);
  return Undefined{};
}

bool TemplateRun::step() {
  if (!ok()) return false;
  if (steps_left == 0) {
    fail("more than " + std::to_string(kTemplateStepsMax) + " steps");
    return false;
  }
  --steps_left;
  return true;
}

bool TemplateRun::work(size_t bytes) {
  if (!ok()) return false;
  if (bytes > work_left) {
    fail("its values take more than " + std::to_string(kTemplateWorkMax) + " bytes");
    return false;
  }
  work_left -= bytes;
  return true;
}

Value make_text(TemplateRun& run, TaggedText text) {
  if (!run.work(text.size() + text.runs().size() * sizeof(TaggedText::Run))) return Undefined{};
  return std::make_shared<const TaggedText>(std::move(text));
}

Value make_text(TemplateRun& run, std::string text, bool from_template) {
  return make_text(run, TaggedText(std::move(text), from_template));
}

Value make_list(TemplateRun& run, std::vector<Value> items) {
  if (!run.work(items.size() * sizeof(Value))) return Undefined{};
  ListBody body;
  for (const Value& item : items) {
    if (item.is<Namespace>()) return run.fail("a namespace inside a list");
    body.depth = std::max(body.depth, depth_of(item) + 1);
  }
  if (body.depth > kTemplateValueDepthMax) {
    return run.fail("lists nest deeper than " + std::to_string(kTemplateValueDepthMax));
  }
  body.items = std::move(items);
  return std::make_shared<const ListBody>(std::move(body));
}

Value make_dict(TemplateRun& run, std::vector<std::pair<std::string, Value>> items) {
  DictBody body;
  for (auto& [key, item] : items) {
    if (!run.work(sizeof(Value) + key.size()) || !run.step()) return Undefined{};
    if (item.is<Namespace>()) return run.fail("a namespace inside a dictionary");
    body.depth = std::max(body.depth, depth_of(item) + 1);
    const auto same = std::ranges::find(
        body.items, key, [](const auto& p) -> auto& { return p.first; });
    if (same != body.items.end()) {
      same->second = std::move(item);
    } else {
      body.items.emplace_back(std::move(key), std::move(item));
    }
  }
  if (body.depth > kTemplateValueDepthMax) {
    return run.fail("dictionaries nest deeper than " + std::to_string(kTemplateValueDepthMax));
  }
  return std::make_shared<const DictBody>(std::move(body));
}

bool truthy(const Value& value) {
  double n = 0;
  if (number(value, n)) return n != 0;
  if (const auto* text = value.text()) return text->size() > 0;
  if (const auto* list = value.as<List>()) return !(*list)->items.empty();
  if (const auto* dict = value.as<Dict>()) return !(*dict)->items.empty();
  return value.is<Namespace>();
}

bool equal(TemplateRun& run, const Value& a, const Value& b) {
  const auto* x = a.as<int64_t>();
  const auto* y = b.as<int64_t>();
  if (x && y) return *x == *y;
  double m = 0;
  double n = 0;
  if (number(a, m) && number(b, n)) return m == n;
  if (a.index() != b.index()) return false;
  if (a.is<Undefined>() || a.is<None>()) return true;
  if (const auto* text = a.text()) {
    return text->size() == b.text()->size() && run.work(text->size()) &&
           text->str() == b.text()->str();
  }
  const auto same = [&](const Value& v, const Value& w) { return equal(run, v, w); };
  if (const auto* list = a.as<List>()) {
    const auto& items = (*list)->items;
    const auto& others = (*b.as<List>())->items;
    return items.size() == others.size() && run.work(items.size() * sizeof(Value)) &&
           std::ranges::equal(items, others, same);
  }
  if (const auto* dict = a.as<Dict>()) {
    const auto& items = (*dict)->items;
    return items.size() == (*b.as<Dict>())->items.size() &&
           run.work(items.size() * items.size() * sizeof(Value)) &&
           std::ranges::all_of(items, [&](const auto& item) {
             const Value* twin = member(b, item.first);
             return twin && same(item.second, *twin);
           });
  }
  return *a.as<Namespace>() == *b.as<Namespace>();
}

const char* kind_name(const Value& value) {
  constexpr const char* kNames[] = {
      "an undefined value", "none",   "a boolean",    "an integer", "a float",
      "a string",           "a list", "a dictionary", "a namespace"};
  return kNames[value.index()];
}

const Value* member(const Value& value, const std::string& key) {
  const auto* items = value.is<Dict>()        ? &(*value.as<Dict>())->items
                      : value.is<Namespace>() ? &(*value.as<Namespace>())->items
                                              : nullptr;
  if (!items) return nullptr;
  const auto it = std::ranges::find(
      *items, key, [](const auto& p) -> auto& { return p.first; });
  return it == items->end() ? nullptr : &it->second;
}

bool print(TemplateRun& run, const Value& value, TaggedText& out) {
  if (!run.ok()) return false;
  if (const auto* text = value.text()) {
    out.append(*text);
  } else if (const auto* b = value.as<bool>()) {
    out.append(*b ? "True" : "False", true);
  } else if (const auto* i = value.as<int64_t>()) {
    out.append(std::to_string(*i), true);
  } else if (const auto* d = value.as<double>()) {
    out.append(digits(*d), true);
  } else if (value.is<None>()) {
    out.append("None", true);
  } else if (!value.is<Undefined>()) {
    run.fail(std::string("cannot print ") + kind_name(value));
    return false;
  }
  return true;
}

bool print_json(TemplateRun& run, const Value& value, int64_t indent, TaggedText& out) {
  if (indent > kIndentMax) {
    run.fail("tojson with an indent above " + std::to_string(kIndentMax));
    return false;
  }
  return JsonWriter{run, indent, out}.write(value, 0);
}

}  // namespace headrace::coordinator

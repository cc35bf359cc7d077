#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/tagged_text.h"
#include "protocol/error.h"

namespace headrace::coordinator {

class Value;
struct ListBody;
struct DictBody;
struct NamespaceBody;

struct Undefined {};
struct None {};
using Text = std::shared_ptr<const TaggedText>;
using List = std::shared_ptr<const ListBody>;
using Dict = std::shared_ptr<const DictBody>;
// The one value that changes: `set ns.name = value`. It is never put inside another value.
using Namespace = std::shared_ptr<NamespaceBody>;

// What a template computes with. Copies share their bodies.
class Value
    : public std::variant<Undefined, None, bool, int64_t, double, Text, List, Dict, Namespace> {
 public:
  using variant::variant;

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(*this);
  }
  // The value as T, or null.
  template <class T>
  const T* as() const {
    return std::get_if<T>(this);
  }
  const TaggedText* text() const { return is<Text>() ? std::get<Text>(*this).get() : nullptr; }
};

struct ListBody {
  std::vector<Value> items;
  uint32_t depth = 1;  // 1 + that of the deepest item
};

struct DictBody {
  std::vector<std::pair<std::string, Value>> items;  // in order of insertion; keys differ
  uint32_t depth = 1;
};

struct NamespaceBody {
  std::vector<std::pair<std::string, Value>> items;
};

// The state of one rendering: the first error and what is left of the budgets. After an error every
// operation returns Undefined at once.
struct TemplateRun {
  Status status;
  uint64_t steps_left = 0;
  uint64_t work_left = 0;
  uint32_t line = 0;  // of the expression being evaluated

  bool ok() const { return status.ok(); }
  // "chat template line 3: <what>"; the first one stays.
  Value fail(const std::string& what);
  // False, after fail(), when a budget is used up.
  bool step();
  bool work(size_t bytes);
};

// Makers; they pay for the bytes they make.
Value make_text(TemplateRun& run, TaggedText text);
Value make_text(TemplateRun& run, std::string text, bool from_template);
// kTemplateValueDepthMax and namespaces inside are refused.
Value make_list(TemplateRun& run, std::vector<Value> items);
// A key given twice: the last value.
Value make_dict(TemplateRun& run, std::vector<std::pair<std::string, Value>> items);

bool truthy(const Value& value);
// Pays for what it compares.
bool equal(TemplateRun& run, const Value& a, const Value& b);
// "string", "list", ... for messages.
const char* kind_name(const Value& value);
// The member of a dictionary or namespace, or null.
const Value* member(const Value& value, const std::string& key);

// What {{ value }} prints. Lists and dictionaries are refused (their Python form is no use in a
// prompt; tojson writes them).
bool print(TemplateRun& run, const Value& value, TaggedText& out);
// As json.dumps(ensure_ascii=False); indent < 0: on one line.
bool print_json(TemplateRun& run, const Value& value, int64_t indent, TaggedText& out);

// An error of a template: kInvalid, "chat template line N: <what>".
Status template_error(uint32_t line, const std::string& what);

}  // namespace headrace::coordinator

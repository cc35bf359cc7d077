#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/template_value.h"

namespace headrace::coordinator {

// A filter, test, method or function of the template language.
struct TemplateCallable {
  enum class Kind : uint8_t { kFilter, kTest, kMethod, kFunction };
  static constexpr size_t kParametersMax = 3;

  Kind kind;
  std::string_view name;
  // Gets the input first (functions: none), then one value a parameter, Undefined where it was
  // left out.
  Value (*body)(TemplateRun& run, std::span<const Value> args);
  std::array<std::string_view, kParametersMax> parameters = {};  // empty: no more
  size_t required = 0;                                           // of the parameters

  size_t parameter_count() const {
    size_t n = 0;
    while (n < kParametersMax && !parameters[n].empty()) ++n;
    return n;
  }
};

// Null if there is none of that name.
const TemplateCallable* find_callable(TemplateCallable::Kind kind, std::string_view name);

// What a loop over the value meets: items, keys, characters; an undefined value is empty. False,
// after run.fail(), for anything else.
bool items_of(TemplateRun& run, const Value& value, std::vector<Value>& out);

// `needle in haystack`.
bool contains(TemplateRun& run, const Value& haystack, const Value& needle);

}  // namespace headrace::coordinator

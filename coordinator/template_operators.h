#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/template_ast.h"

namespace headrace::coordinator {

// The operators of the template language on values, as in Python apart from what is refused.
// After an error the result is undefined and the run has failed.

// + - * / // % ~
Value arithmetic(TemplateRun& run, TemplateOp op, const Value& a, const Value& b);
// == != < <= > >= in, not in
bool compare(TemplateRun& run, TemplateOp op, const Value& a, const Value& b);
Value negate(TemplateRun& run, const Value& value);
// container[key] and container.key; undefined if there is no such item.
Value index(TemplateRun& run, const Value& container, const Value& key);
// container[begin:end:step] of a list or string; none or undefined bounds are left out.
Value slice(TemplateRun& run, const Value& container, const Value& begin, const Value& end,
            const Value& step);

}  // namespace headrace::coordinator

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/template_ast.h"
#include "protocol/result.h"

namespace headrace::coordinator {

// Runs a program with these variables, within the budgets of template_limits.h. Names that nothing
// set are undefined, as in Jinja: empty when printed, false when tested, an error when looked into.
Result<TaggedText> run_template(const TemplateProgram& program,
                                std::vector<std::pair<std::string, Value>> variables);

// A fresh budget.
TemplateRun new_template_run();

}  // namespace headrace::coordinator

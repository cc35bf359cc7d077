#pragma once

#include <vector>

#include "coordinator/template_ast.h"
#include "coordinator/template_lexer.h"

namespace headrace::coordinator {

// Words -> program; statements here, expressions in template_expression. Refuses what it does not
// know with line and name, and what nests deeper than kTemplateDepthMax.
Result<TemplateProgram> parse_template(std::vector<TemplateToken> tokens);

}  // namespace headrace::coordinator

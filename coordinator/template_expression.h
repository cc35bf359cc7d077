#pragma once

#include "coordinator/template_ast.h"
#include "coordinator/template_cursor.h"
#include "coordinator/template_functions.h"

namespace headrace::coordinator {

// Reads expressions at the cursor and puts them into the program. Precedence as in Jinja:
// if-else, or, and, not, comparisons, + -, ~, * / // %, sign, then postfixes, filters and tests.
class TemplateExpressionParser {
 public:
  TemplateExpressionParser(TemplateCursor& cursor, TemplateProgram& program)
      : cursor_(cursor), program_(program) {}

  ExprIndex expression();     // with if-else
  ExprIndex or_expression();  // without

 private:
  ExprIndex and_expression();
  ExprIndex not_expression();
  ExprIndex comparison();
  ExprIndex sum();
  ExprIndex concatenation();
  ExprIndex product();
  ExprIndex unary(bool with_filters);
  ExprIndex primary();
  ExprIndex name_or_constant();
  ExprIndex number();
  ExprIndex list();
  ExprIndex dict();
  ExprIndex postfixes(ExprIndex base);
  ExprIndex subscript(ExprIndex base);
  ExprIndex attribute(ExprIndex base);
  ExprIndex filters_and_tests(ExprIndex base);
  ExprIndex test(ExprIndex base);
  ExprIndex namespace_call(uint32_t line);
  ExprIndex call(TemplateCallable::Kind kind, const TemplateToken& name, ExprIndex input);
  void arguments(TemplateExpr& expr);
  ExprIndex place_arguments(const TemplateCallable& callable, const std::string& label,
                            const TemplateExpr& given, TemplateExpr expr);
  ExprIndex binary(TemplateExpr::Kind kind, ExprIndex left, ExprIndex right, TemplateOp op);
  ExprIndex literal(uint32_t line, Value value);
  ExprIndex add(TemplateExpr expr);

  TemplateCursor& cursor_;
  TemplateProgram& program_;
};

}  // namespace headrace::coordinator

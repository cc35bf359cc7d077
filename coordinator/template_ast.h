#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/template_value.h"

namespace headrace::coordinator {

struct TemplateCallable;

// Nodes lie in two arrays and name each other by index, so that neither building nor dropping a
// program recurses; kTemplateDepthMax bounds how deep they nest.
using ExprIndex = int32_t;
using NodeIndex = int32_t;
constexpr int32_t kNoIndex = -1;

enum class TemplateOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kConcat,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct TemplateExpr {
  enum class Kind : uint8_t {
    kLiteral,
    kName,    // name
    kList,    // args
    kDict,    // args: key, value, key, value, ...
    kNot,     // args: one
    kNegate,  // args: one
    kBinary,  // args: two; ops: one arithmetic operation
    kAnd,
    kOr,         // args: two
    kCompare,    // args: n + 1; ops: n, each true of its neighbours
    kIf,         // args: condition, then, else (may be kNoIndex)
    kIndex,      // args: container, key; x['y'] and x.y
    kSlice,      // args: container, begin, end, step; the last three may be kNoIndex
    kCall,       // callable; args: the input of a filter, method or test, then its parameters;
                 // one left out is kNoIndex
    kNamespace,  // names and args
  };
  Kind kind = Kind::kLiteral;
  bool negated = false;  // kCall: `is not`
  uint32_t line = 0;
  uint32_t depth = 1;
  Value literal;
  std::string name;
  std::vector<TemplateOp> ops;
  std::vector<ExprIndex> args;
  std::vector<std::string> names;
  const TemplateCallable* callable = nullptr;
};

struct TemplateBranch {
  ExprIndex condition = kNoIndex;  // none: else
  std::vector<NodeIndex> body;
};

struct TemplateNode {
  enum class Kind : uint8_t {
    kText,   // text
    kPrint,  // expr
    kIf,     // branches
    kFor,    // names from expr, those for which `condition` holds; branches: body, else
    kSet,    // names: {variable} or {namespace, member}; expr
  };
  Kind kind = Kind::kText;
  uint32_t line = 0;
  std::string text;
  std::vector<std::string> names;
  ExprIndex expr = kNoIndex;
  ExprIndex condition = kNoIndex;
  std::vector<TemplateBranch> branches;
};

struct TemplateProgram {
  std::vector<TemplateExpr> exprs;
  std::vector<TemplateNode> nodes;
  std::vector<NodeIndex> body;
};

}  // namespace headrace::coordinator

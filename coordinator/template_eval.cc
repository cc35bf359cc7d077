#include "coordinator/template_eval.h"

#include <map>
#include <span>

#include "coordinator/template_functions.h"
#include "coordinator/template_limits.h"
#include "coordinator/template_operators.h"

namespace headrace::coordinator {
namespace {

using ExprKind = TemplateExpr::Kind;
using NodeKind = TemplateNode::Kind;

// Recursion follows the nesting of the program only, which the parser bounds.
class Evaluator {
 public:
  Evaluator(const TemplateProgram& program, std::vector<std::pair<std::string, Value>> variables)
      : program_(program), run_(new_template_run()) {
    scopes_.emplace_back();
    for (auto& [name, value] : variables) scopes_[0].insert_or_assign(name, std::move(value));
  }

  Result<TaggedText> run() {
    run_body(program_.body);
    if (!run_.ok()) return run_.status;
    return std::move(out_);
  }

 private:
  using Scope = std::map<std::string, Value, std::less<>>;

  void run_body(const std::vector<NodeIndex>& body) {
    for (const NodeIndex i : body) {
      if (!run_.ok()) return;
      run_node(program_.nodes[static_cast<size_t>(i)]);
    }
  }

  void run_node(const TemplateNode& node) {
    run_.line = node.line;
    if (!run_.step()) return;
    switch (node.kind) {
      case NodeKind::kText:
        return emit(TaggedText(node.text, true));
      case NodeKind::kPrint: {
        TaggedText text;
        const Value value = eval(node.expr);
        run_.line = node.line;
        if (print(run_, value, text)) emit(text);
        return;
      }
      case NodeKind::kIf:
        for (const auto& branch : node.branches) {
          if (branch.condition == kNoIndex || truthy(eval(branch.condition))) {
            return run_body(branch.body);
          }
        }
        return;
      case NodeKind::kFor:
        return run_for(node);
      case NodeKind::kSet:
        return run_set(node);
    }
  }

  void emit(const TaggedText& text) {
    if (out_.size() + text.size() > kTemplateOutputMax) {
      run_.fail("it writes more than " + std::to_string(kTemplateOutputMax) + " bytes");
    } else if (run_.work(text.size())) {
      out_.append(text);
    }
  }

  void run_for(const TemplateNode& node) {
    std::vector<Value> items;
    const Value iterated = eval(node.expr);
    run_.line = node.line;
    if (!items_of(run_, iterated, items)) return;
    if (node.condition != kNoIndex) items = filtered(node, std::move(items));
    if (!run_.ok()) return;
    if (items.empty() && node.branches.size() > 1) return run_body(node.branches[1].body);
    for (size_t i = 0; i < items.size() && run_.step(); ++i) {
      scopes_.emplace_back();
      bind(node, items[i]);
      scopes_.back().insert_or_assign("loop", loop_value(items, i));
      run_body(node.branches[0].body);
      scopes_.pop_back();
    }
  }

  std::vector<Value> filtered(const TemplateNode& node, std::vector<Value> items) {
    std::vector<Value> kept;
    for (Value& item : items) {
      if (!run_.step()) break;
      scopes_.emplace_back();
      bind(node, item);
      if (truthy(eval(node.condition))) kept.push_back(std::move(item));
      scopes_.pop_back();
    }
    return kept;
  }

  void bind(const TemplateNode& node, const Value& item) {
    Scope& scope = scopes_.back();
    if (node.names.size() == 1) {
      scope.insert_or_assign(node.names[0], item);
      return;
    }
    std::vector<Value> parts;
    if (!items_of(run_, item, parts)) return;
    if (parts.size() != node.names.size()) {
      run_.fail("a loop over " + std::to_string(node.names.size()) + " names meets an item of " +
                std::to_string(parts.size()));
      return;
    }
    for (size_t i = 0; i < parts.size(); ++i) scope.insert_or_assign(node.names[i], parts[i]);
  }

  Value loop_value(const std::vector<Value>& items, size_t i) {
    const auto at = static_cast<int64_t>(i);
    const auto size = static_cast<int64_t>(items.size());
    return make_dict(run_, {{"index", at + 1},
                            {"index0", at},
                            {"revindex", size - at},
                            {"revindex0", size - at - 1},
                            {"first", at == 0},
                            {"last", at + 1 == size},
                            {"length", size},
                            {"previtem", i > 0 ? items[i - 1] : Value()},
                            {"nextitem", i + 1 < items.size() ? items[i + 1] : Value()}});
  }

  void run_set(const TemplateNode& node) {
    Value value = eval(node.expr);
    run_.line = node.line;
    if (!run_.ok()) return;
    if (node.names.size() == 1) {
      scopes_.back().insert_or_assign(node.names[0], std::move(value));
      return;
    }
    const Value target = lookup(node.names[0]);
    const auto* space = target.as<Namespace>();
    if (!space) {
      run_.fail("'" + node.names[0] + "' is no namespace");
      return;
    }
    if (value.is<Namespace>()) {
      run_.fail("a namespace inside a namespace");
      return;
    }
    auto& items = (*space)->items;
    for (auto& [name, held] : items) {
      if (name != node.names[1]) continue;
      held = std::move(value);
      return;
    }
    if (items.size() >= kTemplateItemsMax) {
      run_.fail("a namespace holds more than " + std::to_string(kTemplateItemsMax) + " names");
      return;
    }
    items.emplace_back(node.names[1], std::move(value));
  }

  Value lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto it = scope->find(name);
      if (it != scope->end()) return it->second;
    }
    return {};
  }

  Value eval(ExprIndex i) {
    if (i == kNoIndex || !run_.step()) return {};
    const TemplateExpr& e = program_.exprs[static_cast<size_t>(i)];
    switch (e.kind) {
      case ExprKind::kLiteral:
        return e.literal;
      case ExprKind::kName:
        return lookup(e.name);
      case ExprKind::kAnd:
      case ExprKind::kOr: {
        Value left = eval(e.args[0]);
        return truthy(left) == (e.kind == ExprKind::kAnd) ? eval(e.args[1]) : left;
      }
      case ExprKind::kIf:
        return eval(truthy(eval(e.args[0])) ? e.args[1] : e.args[2]);
      case ExprKind::kCompare:
        return eval_compare(e);
      default:
        return eval_eager(e);
    }
  }

  // Stops at the first pair that does not hold, as a chain of ands.
  Value eval_compare(const TemplateExpr& e) {
    Value left = eval(e.args[0]);
    for (size_t k = 0; k < e.ops.size(); ++k) {
      Value right = eval(e.args[k + 1]);
      run_.line = e.line;
      if (!run_.ok() || !compare(run_, e.ops[k], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  // Those that need all their arguments first.
  Value eval_eager(const TemplateExpr& e) {
    std::vector<Value> args;
    args.reserve(e.args.size());
    for (const ExprIndex arg : e.args) args.push_back(eval(arg));
    if (!run_.ok()) return {};
    run_.line = e.line;
    switch (e.kind) {
      case ExprKind::kNot:
        return !truthy(args[0]);
      case ExprKind::kNegate:
        return negate(run_, args[0]);
      case ExprKind::kBinary:
        return arithmetic(run_, e.ops[0], args[0], args[1]);
      case ExprKind::kIndex:
        return index(run_, args[0], args[1]);
      case ExprKind::kSlice:
        return slice(run_, args[0], args[1], args[2], args[3]);
      case ExprKind::kList:
        return make_list(run_, std::move(args));
      case ExprKind::kDict:
        return eval_dict(args);
      case ExprKind::kNamespace:
        return eval_namespace(e, args);
      default:
        break;
    }
    Value result = e.callable->body(run_, args);
    if (!e.negated) return result;
    return !truthy(result);
  }

  Value eval_dict(const std::vector<Value>& args) {
    std::vector<std::pair<std::string, Value>> items;
    for (size_t k = 0; k + 1 < args.size(); k += 2) {
      const TaggedText* key = args[k].text();
      if (!key) return run_.fail("a dictionary key has to be a string");
      items.emplace_back(key->str(), args[k + 1]);
    }
    return make_dict(run_, std::move(items));
  }

  Value eval_namespace(const TemplateExpr& e, const std::vector<Value>& args) {
    auto body = std::make_shared<NamespaceBody>();
    for (size_t k = 0; k < args.size(); ++k) {
      if (args[k].is<Namespace>()) return run_.fail("a namespace inside a namespace");
      body->items.emplace_back(e.names[k], args[k]);
    }
    return body;
  }

  const TemplateProgram& program_;
  TemplateRun run_;
  std::vector<Scope> scopes_;
  TaggedText out_;
};

}  // namespace

TemplateRun new_template_run() {
  TemplateRun run;
  run.steps_left = kTemplateStepsMax;
  run.work_left = kTemplateWorkMax;
  return run;
}

Result<TaggedText> run_template(const TemplateProgram& program,
                                std::vector<std::pair<std::string, Value>> variables) {
  return Evaluator(program, std::move(variables)).run();
}

}  // namespace headrace::coordinator

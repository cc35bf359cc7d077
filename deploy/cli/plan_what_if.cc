#include "deploy/cli/plan_what_if.h"

#include "deploy/cli/numbers.h"
#include "kernels/device.h"

namespace headrace::cli {

const char* const kPlanRemedies =
    "flops=2x, bandwidth=2x, memory=2x, w4, w8, bf16, kv=f16|bf16|fp8|int8, group=32|64|128, "
    "batch=N, context=N";

std::optional<PlanWeights> parse_plan_weights(const std::string& text) {
  for (const PlanWeights weights :
       {PlanWeights::kFile, PlanWeights::kW4, PlanWeights::kW8, PlanWeights::kBf16})
    if (text == name(weights)) return weights;
  return std::nullopt;
}

std::optional<PlanCase> plan_what_if(const PlanCase& at, const std::string& words) {
  PlanCase after = at;
  const size_t equals = words.find('=');
  if (equals == words.npos) {
    const auto weights = parse_plan_weights(words);
    if (!weights || *weights == PlanWeights::kFile) return std::nullopt;
    after.format.weights = *weights;
    after.format.output.reset();
    return after;
  }
  const std::string what = words.substr(0, equals);
  const std::string value = words.substr(equals + 1);
  double* rate = what == "flops"       ? &after.machine.flops
                 : what == "bandwidth" ? &after.machine.read
                 : what == "memory"    ? &after.machine.memory
                                       : nullptr;
  if (rate != nullptr) {
    if (!value.ends_with('x')) return std::nullopt;
    const auto times = parse_number(value.substr(0, value.size() - 1), 0, kPlanTimesMax);
    if (!times || *times < 1 / kPlanTimesMax) return std::nullopt;
    *rate *= *times;
    return after;
  }
  if (what == "kv") {
    const auto type = kernels::parse_kv_type(value);
    if (!type) return std::nullopt;
    after.format.kv = *type;
    return after;
  }
  const auto number = parse_whole(value, 1, what == "batch" ? kPlanBatchMax : kPlanTokensMax);
  int32_t* count = what == "batch"     ? &after.batch
                   : what == "context" ? &after.context
                   : what == "group"   ? &after.format.group
                                       : nullptr;
  if (!number || count == nullptr) return std::nullopt;
  if (what == "group" && *number != 32 && *number != 64 && *number != 128) return std::nullopt;
  *count = static_cast<int32_t>(*number);
  return after;
}

PlanOutcome plan_outcome(const PlanModel& model, const PlanCase& at) {
  PlanOutcome out;
  out.step = plan_decode(model, at);
  out.per_second = at.batch / out.step.floor;
  out.predicted = at.batch / out.step.predicted;
  out.prefill = plan_prefill(model, at).predicted;
  out.fits = plan_room(model, at).holds(at.batch, at.context);
  return out;
}

}  // namespace headrace::cli

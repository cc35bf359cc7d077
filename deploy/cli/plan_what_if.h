#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/plan_time.h"

namespace headrace::cli {

// What would be bought by something that the plan does not have: "flops=2x", "bandwidth=2x",
// "memory=2x", "w4", "w8", "bf16", "kv=f16|bf16|fp8|int8", "group=32|64|128", "batch=16",
// "context=8192".
inline constexpr double kPlanTimesMax = 100;  // of "=2x"
inline constexpr int32_t kPlanBatchMax = 4096;
inline constexpr int32_t kPlanTokensMax = 1 << 20;  // of a context, a prompt, an answer

// `at` with the remedy; nothing if the words name none.
std::optional<PlanCase> plan_what_if(const PlanCase& at, const std::string& words);
// What --what-if takes, for help and errors.
extern const char* const kPlanRemedies;

std::optional<PlanWeights> parse_plan_weights(const std::string& text);

// A case and what comes of it.
struct PlanOutcome {
  PlanTime step;
  double per_second = 0;  // tokens, all sequences, at the floor
  double predicted = 0;   // the same as predicted
  double prefill = 0;     // seconds of the case's prompt, predicted
  bool fits = false;

  Wall wall() const { return fits ? step.wall : Wall::kKvCapacity; }
};
PlanOutcome plan_outcome(const PlanModel& model, const PlanCase& at);

}  // namespace headrace::cli

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "deploy/cli/plan_what_if.h"

namespace headrace::cli {

struct PlanLink {
  std::string name;  // "NVLink", "400 Gb/s"
  double rate = 0;   // bytes a second
};
// NVLink of the GPU, 400, 100 and 10 Gb/s; those given instead, if any.
std::vector<PlanLink> plan_links(const PlanMachine& machine, const std::vector<double>& gbps);

inline constexpr int32_t kPlanBatches[] = {1, 2, 4, 8, 16, 32, 64, 128};
inline constexpr int32_t kPlanContexts[] = {512, 2048, 8192, 32768};
inline constexpr int32_t kPlanPrompts[] = {2048, 8192, 32768, 131072};

// Everything that a plan is made of.
struct PlanRequest {
  PlanModel model;
  std::string gpu;
  PlanCase base;  // what --what-if starts from, and what the tables show where they show one case
  std::vector<PlanLink> links;
  std::vector<std::string> remedies;

  // Formats to show: weights of a file first, if there is one.
  std::vector<PlanWeights> weights() const;
  // Those that the model's own context allows; at least one.
  std::vector<int32_t> contexts() const;
  std::vector<int32_t> prompts() const;
  PlanCase with(PlanWeights weights, kernels::KvType kv) const;
};

// One row of the grid.
struct PlanRow {
  PlanCase at;
  PlanTime step;
  bool fits = false;
  Wall wall = Wall::kUnknown;  // kDram, kCompute; kKvCapacity: it does not fit

  double per_second() const { return at.batch / step.floor; }  // tokens, of all sequences
  double predicted() const { return at.batch / step.predicted; }
};
// Batches x contexts in the format of `at`.
std::vector<PlanRow> plan_rows(const PlanRequest& request, const PlanCase& at);

// Before and after one remedy; with several, after all of them as well.
struct PlanRemedy {
  std::string name;
  PlanOutcome after;
};
std::vector<PlanRemedy> plan_remedies(const PlanRequest& request);

// The base case with another prompt, over each link.
std::vector<PlanHandOff> plan_over_links(const PlanRequest& request, int32_t prompt);

nlohmann::ordered_json plan_json(const PlanRequest& request);
std::string plan_text(const PlanRequest& request);

}  // namespace headrace::cli

#include "deploy/cli/plan_report.h"

#include <algorithm>
#include <cstdio>

#include "protocol/check.h"

namespace headrace::cli {

namespace {

constexpr double kGbps = 1e9 / 8;
constexpr double kLinkGbps[] = {400, 100, 10};

// Those that the model's context allows, or that context itself.
template <size_t N>
std::vector<int32_t> within(const int32_t (&lengths)[N], int32_t context) {
  std::vector<int32_t> out;
  for (const int32_t length : lengths)
    if (length <= context) out.push_back(length);
  if (out.empty()) out.push_back(context);
  return out;
}

}  // namespace

std::vector<PlanLink> plan_links(const PlanMachine& machine, const std::vector<double>& gbps) {
  std::vector<PlanLink> links;
  const auto add = [&](double rate) {
    char text[32];
    std::snprintf(text, sizeof text, "%g Gb/s", rate);
    links.push_back({text, rate * kGbps});
  };
  for (const double rate : gbps) add(rate);
  if (!links.empty()) return links;
  links.push_back({"NVLink", machine.nvlink});
  for (const double rate : kLinkGbps) add(rate);
  return links;
}

std::vector<PlanWeights> PlanRequest::weights() const {
  std::vector<PlanWeights> out = {PlanWeights::kW4, PlanWeights::kW8, PlanWeights::kBf16};
  if (!model.file_layers.empty()) out.insert(out.begin(), PlanWeights::kFile);
  return out;
}

std::vector<int32_t> PlanRequest::contexts() const { return within(kPlanContexts, model.context); }
std::vector<int32_t> PlanRequest::prompts() const { return within(kPlanPrompts, model.context); }

PlanCase PlanRequest::with(PlanWeights weights, kernels::KvType kv) const {
  PlanCase at = base;
  at.format.weights = weights;
  at.format.kv = kv;
  return at;
}

std::vector<PlanRow> plan_rows(const PlanRequest& request, const PlanCase& format) {
  std::vector<PlanRow> rows;
  PlanCase at = format;
  for (const int32_t batch : kPlanBatches) {
    at.batch = batch;
    const PlanRoom room = plan_room(request.model, at);
    for (const int32_t context : request.contexts()) {
      at.context = context;
      PlanRow row{.at = at, .step = plan_decode(request.model, at)};
      row.fits = room.holds(batch, context);
      row.wall = row.fits ? row.step.wall : Wall::kKvCapacity;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<PlanHandOff> plan_over_links(const PlanRequest& request, int32_t prompt) {
  PlanCase at = request.base;
  at.prompt = prompt;
  std::vector<double> rates;
  for (const PlanLink& link : request.links) rates.push_back(link.rate);
  return plan_hand_offs(request.model, at, rates);
}

std::vector<PlanRemedy> plan_remedies(const PlanRequest& request) {
  std::vector<PlanRemedy> out;
  PlanCase all = request.base;
  const auto apply = [](const PlanCase& at, const std::string& words) {
    const auto after = plan_what_if(at, words);
    HEADRACE_CHECK(after.has_value());  // read by the command line
    return *after;
  };
  for (const std::string& words : request.remedies) {
    out.push_back({words, plan_outcome(request.model, apply(request.base, words))});
    all = apply(all, words);
  }
  if (request.remedies.size() > 1) out.push_back({"all", plan_outcome(request.model, all)});
  return out;
}

}  // namespace headrace::cli

#include "deploy/cli/plan_report.h"
#include "kernels/device.h"

namespace headrace::cli {

namespace {

using Json = nlohmann::ordered_json;
using kernels::KvType;

Json model_json(const PlanModel& m) {
  return {{"name", m.name},
          {"layers", m.layers},
          {"dim", m.dim},
          {"ffn", m.ffn},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"vocab", m.vocab},
          {"context", m.context},
          {"tied_output", m.tied},
          {"file", !m.file_layers.empty()}};
}

Json machine_json(const PlanRequest& request) {
  const PlanMachine& m = request.base.machine;
  const auto source = [&](bool given) {
    return given ? "given" : m.measured ? "measured" : "data sheet x share measured on an h200";
  };
  return {{"name", request.gpu},
          {"memory_bytes", m.memory},
          {"read_bytes_per_second", m.read},
          {"read_source", source(m.read_given)},
          {"flops_per_second", m.flops},
          {"flops_source", source(m.flops_given)},
          {"nvlink_bytes_per_second", m.nvlink}};
}

Json assumptions_json(const PlanCase& at) {
  return {{"verified_on_hardware", false},
          {"share_of_limit", at.machine.share},
          {"gap_seconds_a_launch", at.machine.gap},
          {"reserve_bytes", at.machine.reserve},
          {"group", at.format.group},
          {"output_weights", at.format.output ? Json(name(*at.format.output)) : Json(nullptr)},
          {"chunk", at.chunk},
          {"block_tokens", kPlanBlockTokens}};
}

Json memory_json(const PlanRequest& request, const PlanCase& at) {
  const PlanRoom room = plan_room(request.model, at);
  const auto batch = [&](int32_t context) {
    PlanCase one = at;
    one.context = context;
    const uint32_t found = plan_compute_batch(request.model, one);
    return found > 0 ? Json(found) : Json(nullptr);
  };
  Json sequences = Json::object(), compute = Json::object();
  for (const int32_t context : request.contexts()) {
    sequences[std::to_string(context)] = room.sequences(context);
    compute[std::to_string(context)] = batch(context);
  }
  return {{"weights", name(at.format.weights)},
          {"kv", name(at.format.kv)},
          {"fits", room.sequences(request.contexts().front()) > 0},
          {"weight_bytes", room.weight_bytes},
          {"activation_bytes", room.activation_bytes},
          {"rope_bytes", room.rope_bytes},
          {"kv_token_bytes", room.kv_token_bytes},
          {"kv_bytes", room.kv_bytes},
          {"kv_tokens", room.tokens()},
          {"sequences", sequences},
          {"compute_bound_batch", batch(1)},
          {"compute_bound_batch_at", compute}};
}

Json row_json(const PlanRow& row) {
  return {{"batch", row.at.batch},
          {"context", row.at.context},
          {"weights", name(row.at.format.weights)},
          {"kv", name(row.at.format.kv)},
          {"step_bytes", row.step.bytes()},
          {"weight_bytes", row.step.weight_bytes},
          {"kv_bytes", row.step.kv_bytes},
          {"activation_bytes", row.step.activation_bytes},
          {"flops", row.step.flops},
          {"floor_seconds", row.step.floor},
          {"tokens_per_second", row.per_second()},
          {"predicted_seconds", row.step.predicted},
          {"predicted_tokens_per_second", row.predicted()},
          {"wall", name(row.wall)},
          {"fits", row.fits}};
}

Json ratios_json(const PlanRequest& request) {
  Json out = Json::array();
  PlanCase at = request.base;
  for (const int32_t batch : kPlanBatches) {
    at.batch = batch;
    const PlanRatio r = plan_ratio(request.model, at);
    out.push_back({{"batch", batch},
                   {"prompt", at.prompt},
                   {"answer", at.answer},
                   {"prefill_seconds", r.prefill},
                   {"decode_seconds", r.decode},
                   {"prefill_per_decode", r.ratio()},
                   {"fits", r.fits}});
  }
  return out;
}

Json hand_offs_json(const PlanRequest& request) {
  Json out = Json::array();
  for (const int32_t prompt : request.prompts()) {
    const auto over = plan_over_links(request, prompt);
    for (size_t i = 0; i < over.size(); ++i) {
      const PlanHandOff& h = over[i];
      const PlanLink& link = request.links[i];
      out.push_back({{"prompt", prompt},
                     {"link", link.name},
                     {"link_bytes_per_second", link.rate},
                     {"kv_bytes", h.bytes},
                     {"wire_seconds", h.wire},
                     {"prefill_seconds", h.prefill},
                     {"first_token_seconds", h.first_token},
                     {"local_first_token_seconds", h.local},
                     {"loses", h.loses()},
                     {"fits", h.fits}});
    }
  }
  return out;
}

Json outcome_json(const PlanOutcome& o) {
  return {{"step_bytes", o.step.bytes()},
          {"floor_seconds", o.step.floor},
          {"tokens_per_second", o.per_second},
          {"predicted_seconds", o.step.predicted},
          {"predicted_tokens_per_second", o.predicted},
          {"prefill_seconds", o.prefill},
          {"wall", name(o.wall())},
          {"fits", o.fits}};
}

Json remedies_json(const PlanRequest& request) {
  Json out = Json::array();
  const PlanOutcome before = plan_outcome(request.model, request.base);
  for (const PlanRemedy& remedy : plan_remedies(request))
    out.push_back({{"remedy", remedy.name},
                   {"before", outcome_json(before)},
                   {"after", outcome_json(remedy.after)},
                   {"gain", remedy.after.per_second / before.per_second},
                   {"predicted_gain", remedy.after.predicted / before.predicted},
                   {"prefill_gain", before.prefill / remedy.after.prefill}});
  return out;
}

}  // namespace

Json plan_json(const PlanRequest& request) {
  const PlanCase& base = request.base;
  Json memory = Json::array(), rows = Json::array();
  for (const PlanWeights weights : request.weights())
    for (const KvType kv : kernels::kKvTypes) {
      const PlanCase at = request.with(weights, kv);
      memory.push_back(memory_json(request, at));
      for (const PlanRow& row : plan_rows(request, at)) rows.push_back(row_json(row));
    }
  return {{"model", model_json(request.model)},
          {"gpu", machine_json(request)},
          {"assumptions", assumptions_json(base)},
          {"base",
           {{"weights", name(base.format.weights)},
            {"kv", name(base.format.kv)},
            {"batch", base.batch},
            {"context", base.context},
            {"prompt", base.prompt},
            {"answer", base.answer}}},
          {"memory", memory},
          {"rows", rows},
          {"ratios", ratios_json(request)},
          {"hand_off", hand_offs_json(request)},
          {"what_if", remedies_json(request)}};
}

}  // namespace headrace::cli

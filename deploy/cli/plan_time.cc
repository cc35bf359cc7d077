#include "deploy/cli/plan_time.h"

#include <algorithm>
#include <cmath>

#include "deploy/cli/kv_room.h"

namespace headrace::cli {

namespace {

double seconds(double amount, double rate) { return amount / rate; }

// Steps that compute `prompt` tokens; with `at.batch` sequences decoding in each, if wanted.
std::vector<PlanTime> prompt_steps(const PlanModel& model, const PlanCase& at, bool with_batch) {
  std::vector<PlanTime> steps;
  for (int32_t done = 0; done < at.prompt; done += at.chunk) {
    PlanStep step;
    step.chunk = std::min(at.chunk, at.prompt - done);
    step.cached = done;
    if (with_batch) {
      step.batch = at.batch;
      step.context = at.context;
      step.logits = at.batch + (done + step.chunk == at.prompt ? 1 : 0);
    }
    steps.push_back(plan_time(plan_ops(model, at.format, step), at.machine));
  }
  return steps;
}

}  // namespace

PlanTime plan_time(std::span<const PlanOp> ops, const PlanMachine& machine) {
  PlanTime t;
  for (const PlanOp& op : ops) {
    const auto times = static_cast<uint64_t>(op.times);
    const bool spills = static_cast<double>(op.cost.activation_bytes) > machine.cache;
    const uint64_t activations = spills ? op.cost.activation_bytes : 0;
    t.weight_bytes += times * op.cost.weight_bytes;
    t.kv_bytes += times * op.cost.kv_bytes;
    t.activation_bytes += times * activations;
    t.flops += times * op.cost.flops;
    t.launches += static_cast<uint32_t>(op.times);
    const uint64_t bytes = op.cost.weight_bytes + op.cost.kv_bytes + activations;
    const double alone = std::max(seconds(static_cast<double>(bytes), machine.read),
                                  seconds(static_cast<double>(op.cost.flops), machine.flops));
    t.predicted += static_cast<double>(op.times) * (alone / machine.share + machine.gap);
  }
  const double reading = seconds(static_cast<double>(t.bytes()), machine.read);
  const double computing = seconds(static_cast<double>(t.flops), machine.flops);
  t.floor = std::max(reading, computing);
  t.wall = reading >= computing ? Wall::kDram : Wall::kCompute;
  return t;
}

PlanTime plan_decode(const PlanModel& model, const PlanCase& at) {
  const PlanStep step{.batch = at.batch, .context = at.context, .logits = at.batch};
  return plan_time(plan_ops(model, at.format, step), at.machine);
}

uint32_t plan_compute_batch(const PlanModel& model, const PlanCase& at) {
  PlanCase one = at, two = at;
  one.batch = 1;
  two.batch = 2;
  // Both times are straight lines over the batch, as long as the activations stay in the cache.
  one.machine.cache = two.machine.cache = INFINITY;
  const PlanTime a = plan_decode(model, one), b = plan_decode(model, two);
  const auto read = [&](const PlanTime& t) {
    return seconds(static_cast<double>(t.bytes()), at.machine.read);
  };
  const auto compute = [&](const PlanTime& t) {
    return seconds(static_cast<double>(t.flops), at.machine.flops);
  };
  const double ahead = read(a) - compute(a);
  const double closer = (compute(b) - compute(a)) - (read(b) - read(a));
  if (ahead < 0) return 1;
  const double batch = 1 + std::ceil(ahead / closer);
  return closer > 0 && batch < UINT32_MAX ? static_cast<uint32_t>(batch) : 0;
}

uint64_t plan_blocks(uint64_t tokens) { return (tokens + kPlanBlockTokens - 1) / kPlanBlockTokens; }

uint64_t PlanRoom::sequences(int32_t context) const {
  return blocks / plan_blocks(static_cast<uint64_t>(context));
}

PlanRoom plan_room(const PlanModel& model, const PlanCase& at) {
  PlanRoom room;
  const kernels::KvLayout layout = plan_kv_layout(model, at.format.kv);
  room.weight_bytes = plan_weight_bytes(model, at.format);
  room.activation_bytes = plan_activation_bytes(model, at.batch + at.chunk, at.batch);
  room.kv_block_bytes = layout.block_bytes();
  room.kv_token_bytes = layout.token_bytes();
  const double left = at.machine.memory - at.machine.reserve -
                      static_cast<double>(room.weight_bytes + room.activation_bytes);
  if (left <= 0) return room;
  const KvRoom kv{.block_bytes = room.kv_block_bytes,
                  .block_tokens = kPlanBlockTokens,
                  .context = static_cast<uint64_t>(model.context),
                  .rotated = static_cast<uint64_t>(model.rotated)};
  room.blocks = kv.blocks(static_cast<uint64_t>(left));
  room.rope_bytes = kv.rope_bytes(room.blocks);
  room.kv_bytes = static_cast<uint64_t>(left) - room.rope_bytes;
  return room;
}

PlanPrefill plan_prefill(const PlanModel& model, const PlanCase& at) {
  PlanPrefill out;
  for (const PlanTime& step : prompt_steps(model, at, false)) {
    out.floor += step.floor;
    out.predicted += step.predicted;
    out.chunks.push_back(step.predicted);
  }
  return out;
}

PlanRatio plan_ratio(const PlanModel& model, const PlanCase& at) {
  PlanCase middle = at;  // of the answer: half of it is there
  middle.context = at.prompt + (at.answer + 1) / 2;
  return {.batch = at.batch,
          .prefill = plan_prefill(model, at).predicted,
          .decode = at.answer * plan_decode(model, middle).predicted / at.batch,
          .fits = plan_room(model, middle).holds(at.batch, middle.context)};
}

std::vector<PlanHandOff> plan_hand_offs(const PlanModel& model, const PlanCase& at,
                                        std::span<const double> links) {
  const PlanPrefill prefill = plan_prefill(model, at);
  const auto prompt = static_cast<uint64_t>(at.prompt);
  const auto running =
      static_cast<uint64_t>(at.batch) * plan_blocks(static_cast<uint64_t>(at.context));
  PlanHandOff same;  // over any link
  same.prefill = prefill.predicted;
  same.fits = plan_room(model, at).blocks >= running + plan_blocks(prompt);
  for (const PlanTime& step : prompt_steps(model, at, true)) same.local += step.predicted;
  const double decode = plan_decode(model, at).predicted;
  const uint64_t block_bytes = plan_kv_layout(model, at.format.kv).block_bytes();
  std::vector<PlanHandOff> out;
  for (const double link : links) {
    const double rate = link * at.machine.share;
    PlanHandOff& h = out.emplace_back(same);
    // A chunk goes out as soon as it is computed and the link is free; blocks travel whole.
    double computed = 0, sent = 0;
    uint64_t tokens = 0, blocks = 0;
    for (const double chunk : prefill.chunks) {
      computed += chunk;
      tokens = std::min(tokens + static_cast<uint64_t>(at.chunk), prompt);
      const uint64_t full = tokens == prompt ? plan_blocks(prompt) : tokens / kPlanBlockTokens;
      const uint64_t bytes = (full - blocks) * block_bytes;
      sent = std::max(sent, computed) + seconds(static_cast<double>(bytes), rate);
      h.bytes += bytes;
      blocks = full;
    }
    h.wire = seconds(static_cast<double>(h.bytes), rate);
    h.first_token = sent + decode;
  }
  return out;
}

}  // namespace headrace::cli

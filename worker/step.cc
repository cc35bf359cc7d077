#include "worker/step.h"

#include <algorithm>
#include <cmath>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

// Order of service; ties go to the lower index, which arrived no later.
Duration service_key(const PlanSequence& s, const PlanLimits& limits) {
  return s.arrived + (s.length - s.computed) * limits.ageing_per_token;
}

template <class Key>
std::vector<uint32_t> sorted(const std::vector<PlanSequence>& all, Key key) {
  std::vector<uint32_t> order(all.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return key(all[a]) < key(all[b]); });
  return order;
}

bool decodes(const PlanSequence& s) { return s.samples && s.length - s.computed == 1; }

// Blocks free and promised to nobody; the promises always fit (an invariant of the worker).
uint32_t spare_blocks(const PlanInput& in) {
  uint64_t promised = in.granted_blocks;
  for (const auto& s : in.running) promised += outstanding(s, in.limits.block_tokens);
  CHECK(promised <= in.free_blocks);
  return static_cast<uint32_t>(in.free_blocks - promised);
}

class Planner {
 public:
  explicit Planner(const PlanInput& in)
      : in_(in),
        spare_(spare_blocks(in)),
        preempted_(in.running.size(), false),
        oldest_first_(sorted(in.running, [](const PlanSequence& s) { return s.arrived; })) {}

  Plan make() {
    CHECK(in_.limits.running_max <= in_.limits.rows_max);
    decode_rows();
    const uint32_t rows = static_cast<uint32_t>(plan_.parts.size());
    const uint32_t budget = std::min(in_.limits.token_budget, in_.limits.rows_max);
    prefill_ = budget > rows ? budget - rows : 0;
    prefill_ = std::max(prefill_, std::min(budget, kPrefillMin));
    prefill_ = std::min(prefill_, in_.limits.rows_max - rows);
    time_ = time_for_prompts(rows);
    prompts();
    return std::move(plan_);
  }

 private:
  void decode_rows() {
    for (const uint32_t i : oldest_first_) {
      const PlanSequence& s = in_.running[i];
      if (preempted_[i] || !decodes(s)) continue;
      const uint32_t need = blocks_for(s.length, in_.limits.block_tokens) - s.blocks;
      CHECK(need <= 1);
      if (need > 0 && outstanding(s, in_.limits.block_tokens) == 0 && !find_spare(i)) continue;
      plan_.parts.push_back({false, i, 1, need, true});
      decode_context_ += s.length;
    }
  }

  // One spare block for the sequence, by preemption if need be; false when it was itself the
  // youngest and had to go, or has to ask the next plan.
  bool find_spare(uint32_t wanted_by) {
    while (spare_ == 0) {
      plan_.kv_short = true;
      // Those with a row in this plan are older than `wanted_by`, hence never the victim.
      const auto victim =
          std::find_if(oldest_first_.rbegin(), oldest_first_.rend(),
                       [&](uint32_t i) { return !preempted_[i] && in_.running[i].samples; });
      CHECK(victim != oldest_first_.rend());
      const PlanSequence& s = in_.running[*victim];
      // What the others shared among themselves is free too, but is not counted here.
      if (*victim == wanted_by && shared_preempted_) return false;
      preempted_[*victim] = true;
      plan_.preempt.push_back(*victim);
      shared_preempted_ = shared_preempted_ || s.shared > 0;
      spare_ += s.blocks - s.shared + outstanding(s, in_.limits.block_tokens);
      if (*victim == wanted_by) return false;
    }
    --spare_;
    return true;
  }

  Duration time_for_prompts(uint32_t rows) const {
    const PlanLimits& limits = in_.limits;
    if (limits.time == nullptr || rows == 0) return limits.step_target;
    const Duration decode = predict_decode_step(*limits.time, rows, decode_context_);
    return std::max(limits.mixed_target - decode, decode);
  }

  Duration chunk_time(uint32_t tokens, uint32_t after) const {
    if (in_.limits.time == nullptr) return Duration{0};
    const Duration alone = predict_prefill(*in_.limits.time, tokens, after);
    if (decode_context_ == 0) return alone;
    return Duration{std::llround(static_cast<double>(alone.count()) * in_.limits.mixed_ratio)};
  }

  // Tokens of this prompt for which the step has rows and time. The first prompt of all always
  // advances.
  uint32_t tokens_of(const PlanSequence& s) const {
    const uint32_t most = std::min(s.length - s.computed, prefill_);
    if (chunk_time(most, s.computed) <= time_) return most;
    uint32_t fits = 0, over = most;
    while (over - fits > 1) {
      const uint32_t middle = fits + (over - fits) / 2;
      (chunk_time(middle, s.computed) <= time_ ? fits : over) = middle;
    }
    fits -= fits % kPrefillMin;
    return chunked_ ? fits : std::max(fits, std::min(most, kPrefillMin));
  }

  // Prompts that are under way and prompts that wait, in one order of service.
  void prompts() {
    const auto key = [this](const PlanSequence& s) { return service_key(s, in_.limits); };
    const std::vector<uint32_t> begun = sorted(in_.running, key);
    const std::vector<uint32_t> waiting = sorted(in_.waiting, key);
    bool admits = plan_.preempt.empty();
    size_t w = 0;
    for (const uint32_t i : begun) {
      if (preempted_[i] || decodes(in_.running[i])) continue;
      while (admits && w < waiting.size() && key(in_.waiting[waiting[w]]) < key(in_.running[i])) {
        admits = admit(waiting[w++]);
      }
      if (prefill_ == 0 || !chunk(in_.running[i], false, i)) return;
    }
    while (admits && w < waiting.size()) admits = admit(waiting[w++]);
  }

  // False: it does not fit, and nothing overtakes it.
  bool admit(uint32_t index) {
    const PlanSequence& s = in_.waiting[index];
    CHECK(s.blocks == 0 && s.computed == s.hits * in_.limits.block_tokens);
    const uint32_t need = to_admit(s, in_.limits.block_tokens);
    const size_t running = in_.running.size() + in_.granted_sequences + admitted_;
    if (prefill_ == 0 || running >= in_.limits.running_max) return false;
    if (tokens_of(s) == 0 && s.computed < s.length) return false;
    if (need > spare_) {
      plan_.kv_short = true;
      return false;
    }
    spare_ -= need;
    ++admitted_;
    chunk(s, true, index);
    return true;
  }

  // False: the step has no time left for it.
  bool chunk(const PlanSequence& s, bool from_waiting, uint32_t index) {
    const uint32_t tokens = tokens_of(s);
    if (tokens == 0 && s.computed < s.length) return false;
    const uint32_t end = s.computed + tokens;
    const uint32_t blocks = blocks_for(end, in_.limits.block_tokens);
    const uint32_t held = s.blocks + s.hits;
    const uint32_t need = blocks > held ? blocks - held : 0;
    CHECK(s.blocks + need <= blocks_for(s.promised, in_.limits.block_tokens));
    plan_.parts.push_back({from_waiting, index, tokens, need, s.samples && end == s.length});
    prefill_ -= tokens;
    time_ -= chunk_time(tokens, s.computed);
    chunked_ = chunked_ || tokens > 0;
    return true;
  }

  const PlanInput& in_;
  uint32_t spare_;
  uint32_t prefill_ = 0;  // rows, and time, that prompts may still have
  Duration time_{0};
  uint64_t decode_context_ = 0;
  bool chunked_ = false;
  size_t admitted_ = 0;
  bool shared_preempted_ = false;
  std::vector<bool> preempted_;
  std::vector<uint32_t> oldest_first_;
  Plan plan_;
};

}  // namespace

uint32_t outstanding(const PlanSequence& s, uint32_t block_tokens) {
  const uint32_t promised = blocks_for(s.promised, block_tokens);
  return promised > s.blocks ? promised - s.blocks : 0;
}

uint32_t to_admit(const PlanSequence& s, uint32_t block_tokens) {
  return outstanding(s, block_tokens) - (s.hits - s.idle_hits);
}

uint32_t room(const PlanInput& in) {
  uint64_t wanted = 0;
  for (const auto& s : in.waiting) wanted += to_admit(s, in.limits.block_tokens);
  const uint32_t spare = spare_blocks(in);
  return wanted < spare ? static_cast<uint32_t>(spare - wanted) : 0;
}

Plan plan(const PlanInput& in) { return Planner(in).make(); }

}  // namespace headrace::worker

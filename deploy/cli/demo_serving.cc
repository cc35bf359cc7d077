#include "deploy/cli/demo_serving.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "protocol/check.h"
#include "worker/block_pool.h"
#include "worker/step.h"

namespace headrace::cli {

namespace {

using worker::blocks_for;
using worker::kGrowthReserve;

// Tokens for which a sequence of so many is promised blocks.
uint32_t promise_of(uint32_t tokens, const DemoPolicy& policy) {
  return policy.contiguous ? policy.context : std::min(tokens + kGrowthReserve, policy.context);
}

struct DemoSequence {
  DemoAsk ask;
  worker::PlanSequence at;
  std::vector<BlockRef> blocks;
  bool ended() const { return at.length == ask.prompt + ask.answer; }
};

class DemoServing {
 public:
  DemoServing(const std::vector<DemoAsk>& asks, const DemoPolicy& policy)
      : policy_(policy), pool_(policy.blocks) {
    for (const DemoAsk& ask : asks) {
      CHECK(ask.prompt >= 1 && ask.answer >= 1 && ask.prompt + ask.answer <= policy.context);
      DemoSequence s;
      s.ask = ask;
      s.at.length = ask.prompt;
      s.at.promised = promise_of(ask.prompt, policy);
      s.at.arrived = waiting_.size() * 1s;
      waiting_.push_back(std::move(s));
    }
    CHECK(blocks_for(policy.context, kDemoServingBlock) <= policy.blocks);
  }

  DemoOutcome run() {
    while (!running_.empty() || !waiting_.empty()) step();
    if (out_.full_steps > 0) {
      out_.admitted /= static_cast<double>(out_.full_steps);
      out_.waste /= static_cast<double>(out_.full_steps);
    }
    const auto slots = static_cast<double>(out_.steps * policy_.slots);
    out_.idle = 1 - static_cast<double>(out_.tokens) / slots;
    return out_;
  }

 private:
  worker::PlanInput input() const {
    worker::PlanInput in;
    in.limits.block_tokens = kDemoServingBlock;
    in.limits.running_max = policy_.slots;
    in.limits.token_budget = policy_.token_budget;
    in.limits.rows_max = std::max(policy_.token_budget, policy_.slots);
    in.free_blocks = pool_.available();
    for (const DemoSequence& s : running_) in.running.push_back(s.at);
    const size_t offered = !policy_.waits_for_all ? waiting_.size()
                           : running_.empty()     ? std::min<size_t>(policy_.slots, waiting_.size())
                                                  : 0;
    for (size_t i = 0; i < offered; i++) in.waiting.push_back(waiting_[i].at);
    return in;
  }

  void step() {
    const worker::Plan plan = worker::plan(input());
    CHECK(!plan.parts.empty() || !plan.preempt.empty());
    std::vector<size_t> gone(plan.preempt.begin(), plan.preempt.end()), begun;
    for (const size_t i : gone) preempt(running_[i]);
    for (const worker::PlanPart& part : plan.parts) {
      DemoSequence& s = part.from_waiting ? waiting_[part.index] : running_[part.index];
      advance(s, part);
      if (part.from_waiting) begun.push_back(part.index);
    }
    if (plan.kv_short) count_full(begun.size(), gone.size());
    move_on(begun, gone);
    out_.steps++;
  }

  void preempt(DemoSequence& s) {
    pool_.release(s.blocks, worker::Hold::kActive);
    s.blocks.clear();
    s.at.computed = s.at.blocks = 0;
    s.at.promised = promise_of(s.at.length, policy_);
    out_.preempted++;
  }

  void advance(DemoSequence& s, const worker::PlanPart& part) {
    const auto taken = pool_.take(part.new_blocks, worker::Hold::kActive);
    CHECK(taken.has_value());
    s.blocks.insert(s.blocks.end(), taken->begin(), taken->end());
    s.at.blocks = static_cast<uint32_t>(s.blocks.size());
    s.at.computed += part.tokens;
    if (!part.sample) return;
    s.at.length++;
    out_.tokens++;
  }

  void count_full(size_t begun, size_t gone) {
    uint64_t held = 0;
    for (const auto* all : {&running_, &waiting_})
      for (const DemoSequence& s : *all) held += s.at.computed;
    out_.full_steps++;
    out_.admitted += static_cast<double>(running_.size() + begun - gone);
    out_.waste += 1 - static_cast<double>(held) / (uint64_t{policy_.blocks} * kDemoServingBlock);
  }

  // Those that began run, those that were preempted wait, those that ended are gone.
  void move_on(const std::vector<size_t>& begun, const std::vector<size_t>& gone) {
    std::vector<DemoSequence> running, waiting;
    const auto holds = [](const std::vector<size_t>& all, size_t i) {
      return std::find(all.begin(), all.end(), i) != all.end();
    };
    for (size_t i = 0; i < running_.size(); i++)
      (holds(gone, i) ? waiting : running).push_back(std::move(running_[i]));
    for (size_t i = 0; i < waiting_.size(); i++)
      (holds(begun, i) ? running : waiting).push_back(std::move(waiting_[i]));
    std::erase_if(running, [this](const DemoSequence& s) {
      if (s.ended()) pool_.release(s.blocks, worker::Hold::kActive);
      return s.ended();
    });
    running_ = std::move(running);
    waiting_ = std::move(waiting);
    const auto earlier = [](const DemoSequence& a, const DemoSequence& b) {
      return a.at.arrived < b.at.arrived;
    };
    std::stable_sort(waiting_.begin(), waiting_.end(), earlier);
  }

  const DemoPolicy policy_;
  worker::BlockPool pool_;
  std::vector<DemoSequence> running_, waiting_;
  DemoOutcome out_;
};

// Steps of batches that each take as long as their longest answer.
uint64_t static_steps(const std::vector<DemoAsk>& asks, uint32_t slots) {
  uint64_t steps = 0;
  for (size_t i = 0; i < asks.size(); i += slots) {
    uint32_t longest = 0;
    for (size_t k = i; k < std::min<size_t>(i + slots, asks.size()); k++)
      longest = std::max(longest, asks[k].answer);
    steps += longest;
  }
  return steps;
}

// Steps until the last answer ends, each in the place that is free first.
uint64_t filled_steps(const std::vector<DemoAsk>& asks, uint32_t slots) {
  std::vector<uint64_t> free_at(slots);
  for (const DemoAsk& ask : asks) *std::min_element(free_at.begin(), free_at.end()) += ask.answer;
  return *std::max_element(free_at.begin(), free_at.end());
}

}  // namespace

std::vector<DemoAsk> demo_asks(const DemoMix& mix) {
  std::mt19937_64 random(mix.seed);  // the distributions of the library differ, its engines do not
  const auto length = [&random](uint32_t least, uint32_t most) {
    const double part = static_cast<double>(random() >> 11) * 0x1p-53;
    return static_cast<uint32_t>(std::lround(least * std::pow(double{1} * most / least, part)));
  };
  std::vector<DemoAsk> asks;
  for (uint32_t i = 0; i < mix.count; i++) {
    const uint32_t prompt = length(mix.prompt_min, mix.prompt_max);
    asks.push_back({prompt, length(mix.answer_min, mix.answer_max)});
  }
  return asks;
}

DemoOutcome serve_demo(const std::vector<DemoAsk>& asks, const DemoPolicy& policy) {
  return DemoServing(asks, policy).run();
}

DemoOutcome predict_demo(const std::vector<DemoAsk>& asks, const DemoPolicy& policy) {
  DemoOutcome out;
  double kept = 0, held = 0;  // tokens of room, and in it, over all steps of all answers
  for (const DemoAsk& ask : asks) {
    out.tokens += ask.answer;
    for (uint32_t made = 0; made < ask.answer; made++) {
      const uint32_t tokens = ask.prompt + made;
      const uint32_t room = std::max(promise_of(ask.prompt, policy), tokens);
      kept += blocks_for(room, kDemoServingBlock) * kDemoServingBlock;
      held += tokens;
    }
  }
  const double steps = static_cast<double>(out.tokens);
  const double memory = double{1} * policy.blocks * kDemoServingBlock;
  out.admitted = memory / (kept / steps);
  out.waste = 1 - held / kept;
  out.steps =
      policy.waits_for_all ? static_steps(asks, policy.slots) : filled_steps(asks, policy.slots);
  out.idle = 1 - steps / static_cast<double>(out.steps * policy.slots);
  return out;
}

}  // namespace headrace::cli

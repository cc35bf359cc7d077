#pragma once

#include <cstdint>
#include <vector>

namespace headrace::cli {

// A request of the made-up mix: lengths in tokens.
struct DemoAsk {
  uint32_t prompt = 0;
  uint32_t answer = 0;
};

// Lengths from the least to the most, as many between n and 2n as between 2n and 4n: what people
// ask varies by factors. The same for a seed everywhere.
struct DemoMix {
  uint32_t count = 0;
  uint32_t prompt_min = 0, prompt_max = 0;
  uint32_t answer_min = 0, answer_max = 0;
  uint64_t seed = 1;
};
std::vector<DemoAsk> demo_asks(const DemoMix& mix);

// How a mix is served. All wait from the start, in order, and nobody knows how long the answers
// will be.
struct DemoPolicy {
  uint32_t blocks = 0;  // of KV, of kDemoServingBlock tokens
  uint32_t context = 0;
  uint32_t slots = 256;         // sequences at a time, at most
  uint32_t token_budget = 512;  // of a step
  bool contiguous = false;      // a sequence gets room for the whole context, and keeps it
  bool waits_for_all = false;   // static batching: the next ones begin when all have ended
};
inline constexpr uint32_t kDemoServingBlock = 32;

struct DemoOutcome {
  uint64_t steps = 0;
  uint64_t tokens = 0;  // of all answers
  uint64_t preempted = 0;
  double idle = 0;  // of slots x steps, those that made no token
  // Of the steps in which someone waited for KV, means; 0: there were none.
  uint64_t full_steps = 0;
  double admitted = 0;  // sequences that run
  double waste = 0;     // of the KV memory, what holds no token
};
// Serves them by the worker's own plan() and BlockPool; a step makes no numbers, it only counts.
DemoOutcome serve_demo(const std::vector<DemoAsk>& asks, const DemoPolicy& policy);

// What the lengths alone say of it: sequences admitted and waste when KV is full; steps and idle
// share when KV is not: the longest of each static batch, or each answer in the place that is free
// first.
DemoOutcome predict_demo(const std::vector<DemoAsk>& asks, const DemoPolicy& policy);

}  // namespace headrace::cli

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "deploy/cli/plan_gpu.h"
#include "deploy/cli/plan_model.h"
#include "protocol/time_model.h"

namespace headrace::cli {

// One case: how a model is stored, where it runs, and what it is asked to do.
struct PlanCase {
  PlanFormat format;
  PlanMachine machine;
  int32_t batch = 1;       // sequences that decode at a time
  int32_t context = 2048;  // of each
  int32_t prompt = 2048;   // tokens
  int32_t answer = 256;    // tokens
  int32_t chunk = 512;     // prompt tokens a step
};

// What a step must move and compute, and how long that takes.
//   floor      the larger of bytes / bandwidth and operations / peak, as protocol/time_model.h has
//              it: nothing on this machine is faster
//   predicted  operations one after the other, each the larger of its two times at `share` of the
//              limits, and a gap for each launch. An assumption until a GPU has run it.
// Activations are handed on in the L2 cache; those of an operation that exceed it cross the bus.
struct PlanTime {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t activation_bytes = 0;  // that cross the bus
  uint64_t flops = 0;
  uint32_t launches = 0;
  double floor = 0;            // seconds
  double predicted = 0;        // seconds
  Wall wall = Wall::kUnknown;  // kDram or kCompute

  uint64_t bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
};
PlanTime plan_time(std::span<const PlanOp> ops, const PlanMachine& machine);
PlanTime plan_decode(const PlanModel& model, const PlanCase& at);

// The smallest batch at which a decode step of this context computes longer than it reads; 0: none
// does, since each further sequence brings more to read than to compute.
uint32_t plan_compute_batch(const PlanModel& model, const PlanCase& at);

uint64_t plan_blocks(uint64_t tokens);  // of KV that hold them

// What fits into memory.
struct PlanRoom {
  uint64_t weight_bytes = 0;
  uint64_t activation_bytes = 0;
  uint64_t rope_bytes = 0;  // rotations of as many positions as the blocks hold
  uint64_t kv_block_bytes = 0;
  uint64_t kv_token_bytes = 0;
  uint64_t kv_bytes = 0;  // left for KV; 0: not even the rest fits
  uint64_t blocks = 0;

  uint64_t resident() const { return weight_bytes + activation_bytes + rope_bytes; }
  uint64_t tokens() const { return blocks * kPlanBlockTokens; }
  uint64_t sequences(int32_t context) const;  // of this context, at a time
  bool holds(int32_t batch, int32_t context) const {
    return sequences(context) >= static_cast<uint64_t>(batch);
  }
};
// With activations for steps of `at.batch` sequences and a chunk of a prompt.
PlanRoom plan_room(const PlanModel& model, const PlanCase& at);

// Computing a prompt in chunks, on a worker of its own.
struct PlanPrefill {
  double floor = 0;
  double predicted = 0;
  std::vector<double> chunks;  // seconds of each, predicted
};
PlanPrefill plan_prefill(const PlanModel& model, const PlanCase& at);

// Prefill workers that keep one decode worker of `at.batch` sequences busy.
struct PlanRatio {
  int32_t batch = 0;
  double prefill = 0;  // seconds of a prefill worker, a request
  double decode = 0;   // seconds of a decode worker, a request
  bool fits = false;   // the batch, at the answers' mean length
  double ratio() const { return prefill / decode; }
};
PlanRatio plan_ratio(const PlanModel& model, const PlanCase& at);

// A prompt's KV on its way to a decode worker that answers `at.batch` sequences meanwhile.
struct PlanHandOff {
  uint64_t bytes = 0;
  double wire = 0;         // seconds on the link, at `share` of its rate
  double first_token = 0;  // prefill, what the link has left after it, one decode step
  double local = 0;        // first token if the decode worker computes the prompt between its steps
  double prefill = 0;      // seconds, on a worker of its own
  bool fits = false;       // the batch and the prompt beside it
  // The link is slower than the prefill worker, which waits for it, and the answer would begin
  // sooner without either.
  bool loses() const { return wire > prefill && first_token > local; }
};
// One for each link, by its bytes a second.
std::vector<PlanHandOff> plan_hand_offs(const PlanModel& model, const PlanCase& at,
                                        std::span<const double> links);

}  // namespace headrace::cli

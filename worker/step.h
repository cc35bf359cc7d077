#pragma once

#include <cstdint>
#include <vector>

#include "protocol/strand.h"
#include "protocol/time_model.h"

namespace headrace::worker {

// What to run next: a pure function of the sequences and the pool.

// Tokens of an answer for which blocks are promised when a sequence is admitted.
constexpr uint32_t kGrowthReserve = 256;
// Prefill tokens that a step takes even when decode rows fill the budget, or its time.
constexpr uint32_t kPrefillMin = 16;

struct PlanSequence {
  uint32_t length = 0;     // tokens known: prompt and what was generated
  uint32_t computed = 0;   // of them with KV in blocks; waiting: with KV in the prefix cache
  uint32_t blocks = 0;     // held
  uint32_t promised = 0;   // tokens for which blocks are promised; >= length at admission
  bool samples = true;     // false: a prefill worker's part, ends when all are computed
  Duration arrived{};      // since any fixed moment
  uint32_t shared = 0;     // of the blocks held by others too: preemption does not free them
  uint32_t hits = 0;       // waiting: blocks of the prefix cache that hold its first tokens
  uint32_t idle_hits = 0;  // of them held by nobody: among the free blocks until it is admitted
};

struct PlanLimits {
  uint32_t block_tokens = 32;
  uint32_t token_budget = 512;  // rows of a step, decode rows counted first
  uint32_t rows_max = 512;      // what the engine takes
  uint32_t running_max = 256;   // sequences
  // A prompt token not yet computed puts its sequence back by this much against those that come
  // later: short prompts pass long ones, waiting or half computed, but only by the time that the
  // long one takes by itself, so none starves. Best the predicted time of a prompt token.
  Duration ageing_per_token = 50us;
  // Predicts how long parts take; null, or nothing measured: no limit but the budget. A token of a
  // prompt costs the more the further back it stands, so tokens alone bound no time.
  const TimeModel* time = nullptr;
  double mixed_ratio = 1;  // by how much steps with prompts and decode rows differ from it
  // Prompts take at most this time of a step, or kPrefillMin tokens: whoever cancels waits so long.
  Duration step_target = 1s;
  // A step with decode rows ends within this, or takes twice the time of those rows: so long may a
  // token of one client be late because of the prompts of others.
  Duration mixed_target = 200ms;
};

struct PlanInput {
  std::vector<PlanSequence> running;  // each holds blocks or has been admitted
  std::vector<PlanSequence> waiting;  // hold none
  uint32_t free_blocks = 0;           // free or cached
  uint32_t granted_blocks = 0;        // promised to grants beyond what they hold
  uint32_t granted_sequences = 0;     // that will run once their KV has come
  PlanLimits limits;
};

struct PlanPart {
  bool from_waiting = false;  // index into waiting (it is admitted by this), else into running
  uint32_t index = 0;
  uint32_t tokens = 0;      // to compute, from `computed` on; 0: all was in the prefix cache
  uint32_t new_blocks = 0;  // to take first, beside the hits of all that this plan admits
  bool sample = false;      // the part reaches the last known token of a sequence that samples
  bool operator==(const PlanPart&) const = default;
};

struct Plan {
  std::vector<PlanPart> parts;    // decode rows first, then prefill chunks
  std::vector<uint32_t> preempt;  // of running: free its blocks, let it wait and be recomputed
  bool kv_short = false;          // someone waits, or was preempted, for want of blocks
};

// Blocks that `tokens` tokens need.
constexpr uint32_t blocks_for(uint64_t tokens, uint32_t block_tokens) {
  return static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

// Blocks promised to a sequence and not yet taken.
uint32_t outstanding(const PlanSequence& s, uint32_t block_tokens);
// Free blocks that a waiting sequence uses up when it is admitted: what is promised to it less the
// hits that others hold anyway.
uint32_t to_admit(const PlanSequence& s, uint32_t block_tokens);

// Blocks that are neither held nor promised to anyone who runs or was granted, less what the
// waiting will want: what a new grant may use without overtaking them. Never negative.
uint32_t room(const PlanInput& in);

// Decode rows first, oldest first; then chunks of prompts, begun or admitted by this, in order of
// arrival with ageing; admissions while all that is promised fits. A sequence that outgrows its
// promise takes spare blocks; when there are none the youngest sequence that samples is preempted,
// so the oldest always advances. Promised blocks are never given to another. What preemption frees
// is a lower bound where blocks are shared; the next plan sees the rest.
Plan plan(const PlanInput& in);

}  // namespace headrace::worker

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "protocol/generation.h"

namespace headrace::worker {

// What penalties and bias of one request do to the logits of its next token. The repetition penalty
// counts prompt and answer, presence and frequency penalty only what was generated, by whatever
// attempt. All of it follows from the tokens alone: rebuilt on another worker or after a preemption
// it says the same.
class Penalties {
 public:
  Penalties() = default;
  // tokens[first_generated...] of the sequence were generated, those before are the prompt proper:
  // prompt_tokens - generated_before of a Sequence. An id with two biases gets their sum.
  Penalties(const Sampling& sampling, uint32_t first_generated);

  // Nothing to do, ever: edits() is empty.
  bool idle() const { return bias_.empty() && !counts_prompt() && !counts_generated(); }

  // What edits() says depends on the tokens, not on biases alone.
  bool counts() const { return counts_prompt() || counts_generated(); }

  // Of the token that follows `tokens`, which is the whole sequence so far: what it was at the last
  // call and what has come since. Ids ascending, each once. O(entries + new tokens).
  std::vector<kernels::LogitEdit> edits(std::span<const Token> tokens);

 private:
  // An id that was seen, or has a bias.
  struct Entry {
    Token id = 0;
    uint32_t generated = 0;  // how often
    bool seen = false;       // in prompt or answer
    float bias = 0;
  };

  bool counts_prompt() const { return repetition_ != 1; }
  bool counts_generated() const { return presence_ != 0 || frequency_ != 0; }
  void take(std::span<const Token> tokens, bool generated);
  kernels::LogitEdit edit(const Entry& entry) const;

  float presence_ = 0;
  float frequency_ = 0;
  float repetition_ = 1;
  std::vector<LogitBias> bias_;
  size_t first_generated_ = 0;
  size_t taken_ = 0;            // tokens counted so far
  std::vector<Entry> entries_;  // ids ascending
};

}  // namespace headrace::worker

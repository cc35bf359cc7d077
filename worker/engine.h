#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "protocol/generation.h"
#include "protocol/ids.h"
#include "protocol/model_card.h"

namespace headrace::worker {

// One sequence's part in a step: computes KV for `tokens` at [position, position + tokens.size())
// and, with `sample`, chooses the token that follows the last of them.
struct StepSequence {
  std::vector<uint32_t> blocks;  // block table; covers position + tokens.size() tokens
  uint32_t position = 0;
  std::vector<Token> tokens;  // at least one
  bool sample = false;
  Sampling sampling;
  uint32_t index = 0;                     // of the token to choose in the generated sequence
  std::vector<kernels::LogitEdit> edits;  // of the logits before sampling; ids ascending
};

struct Step {
  std::vector<StepSequence> sequences;
  uint32_t rows() const {
    size_t n = 0;
    for (const auto& s : sequences) n += s.tokens.size();
    return static_cast<uint32_t>(n);
  }
};

struct StepDone {
  // By sequence: the chosen token; -1 where none was asked for; kNumeric where the logits held
  // NaN or infinity.
  static constexpr Token kNumeric = -2;
  std::vector<Token> sampled;
  std::vector<Logprobs> logprobs;  // by sequence where sampling.logprobs asks; empty: nobody asked
  double seconds = 0;
  std::vector<kernels::OpAccount> accounts;  // what the step cost, by operation
};

// Executes steps over one device and its KV blocks. Knows nothing of requests, pools or peers.
// Bodies: ModelEngine (a real model), SimEngine (tests/sim: tokens are a hash of the sequence).
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const ModelCard& card() const = 0;
  virtual uint32_t blocks() const = 0;  // KV blocks that exist
  // The most rows one step may have.
  virtual uint32_t rows_max() const = 0;
  // Runs one step; at most one at a time. `done` is called once, on any thread. A block that the
  // step begins to fill (position a multiple of block_tokens) is zeroed first, so unused slots are
  // zero.
  virtual void run(Step step, std::function<void(StepDone)> done) = 0;
  // A block's card().block_bytes, where the host uses the blocks as its own memory; else null. Of
  // this and what follows: the caller sees to it that no step in flight touches a block that it
  // reads or writes.
  virtual std::byte* host_block(BlockId id) = 0;
  // What copies the blocks where the host does not; else null. On one strand; it throws
  // DeviceError.
  virtual kernels::BlockCopies* copies() { return nullptr; }
  // Such an error: the device does no more.
  virtual void lost(const std::string& why) = 0;
  // Bytes [offset, offset + bytes) of a block, valid until the next call of this engine. May wait
  // for the device: for digests and tests.
  virtual std::span<const std::byte> read_block(BlockId id, size_t offset, size_t bytes) = 0;
};

}  // namespace headrace::worker

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
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
  // Of a prepared step: its one token is what this sequence of the step in flight samples, unless
  // that is one of `end_tokens`. What stands in `tokens` is put in its place.
  std::optional<uint32_t> follows;
  std::vector<Token> end_tokens;
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
  bool followed = false;  // the step that was prepared has begun; else there is none any more
};

// Puts the tokens that a step sampled where a prepared one wants them. False: it must not run, one
// of them is an end token or kNumeric.
bool follow(Step& prepared, std::span<const Token> sampled);

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
  // The step to run as soon as the one in flight has ended, with nobody asked in between: it begins
  // when the `done` of that one has returned, or is dropped where follow() says so or the engine
  // ends. Its blocks are in use from then on. One at a time; from any thread. False: not taken,
  // since none is in flight any more.
  virtual bool prepare(Step next, std::function<void(StepDone)> done) = 0;
  // Takes the prepared step back. False: it has begun or was dropped, which the `done` of the step
  // before it says, or there is none.
  virtual bool withdraw() = 0;
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

#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine.h"

namespace headrace::worker {

// One step, or the steps of one prompt, as a bench saw them.
struct BenchRun {
  double seconds = 0;  // from the call to its answer: queueing and waking of the engine included
  std::vector<kernels::OpAccount> accounts;
  kernels::Cost cost() const;
  double inside() const;  // seconds in operations; what is missing to `seconds` lay between them
};

// Drives an engine as a worker would, without requests: a fixed batch of sequences whose blocks lie
// among each other's, as those of a pool in use do. Needs blocks_for() blocks; the engine is idle
// and its blocks belong to the bench.
class EngineBench {
 public:
  static uint64_t blocks_for(const ModelCard& card, uint32_t batch, uint32_t tokens);

  // `tokens`: the most that each sequence will have.
  EngineBench(Engine& engine, uint32_t batch, uint32_t tokens);

  // All sequences become empty again.
  void clear() { position_ = 0; }
  // As if `tokens` tokens of each sequence had been computed: their KV holds numbers about 1.
  // Where the host cannot write the blocks, what lies there stays.
  void fill(uint32_t tokens);
  // Computes the next `tokens` tokens of every sequence, one sequence after the other, in steps as
  // long as the engine takes; the last row of each samples.
  BenchRun prefill(uint32_t tokens);
  // One more token for every sequence, all in one step.
  BenchRun decode();

  uint32_t position() const { return position_; }

 private:
  BenchRun run(Step step);
  StepSequence sequence(uint32_t index, uint32_t position, uint32_t tokens) const;

  Engine& engine_;
  const uint32_t batch_;
  const uint32_t tokens_;
  uint32_t position_ = 0;
};

// The accounts of both together.
BenchRun operator+(BenchRun a, const BenchRun& b);

}  // namespace headrace::worker

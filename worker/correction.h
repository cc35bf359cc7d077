#pragma once

#include <cstdint>

#include "protocol/time_model.h"

namespace headrace::worker {

// The shape of a step that ran, as far as the model of time sees it.
struct StepShape {
  uint64_t prefill_tokens = 0;
  uint64_t prefill_after = 0;  // tokens computed before, weighted by the prefill tokens
  uint64_t decode_rows = 0;
  uint64_t context_tokens = 0;  // of the decode rows
};

// Learns by how much steps differ from the prediction: an exponential mean over about the last
// 16 steps of each kind but its first. Mixed steps teach only how much longer they take than their
// parts. A pure value; one strand.
class CorrectionLearner {
 public:
  explicit CorrectionLearner(TimeModel model) : model_(std::move(model)) {}
  void learn(const StepShape& shape, double seconds);
  // Of a step, as corrected so far; zero where nothing was measured.
  Duration predict(const StepShape& shape) const;
  const Correction& value() const { return model_.correction; }
  // What predicts, as corrected so far, and what mixed steps take of what it predicts.
  const TimeModel& model() const { return model_; }
  double mixed_ratio() const { return mixed_ratio_; }
  // The most prompt tokens, a power of two's part of `most` and at least kPacedMin, whose step is
  // predicted to end within kStepTarget: a slow machine takes smaller steps, so that decoding rows,
  // cancellation and deadlines never wait long. Where nothing was measured: `most`.
  uint32_t paced_tokens(uint32_t most) const;
  // Predicted time of one prompt token in a step of `tokens`; zero where nothing was measured.
  Duration token_time(uint32_t tokens) const;
  static constexpr uint32_t kPacedMin = 16;
  static constexpr Duration kStepTarget = 1s;

 private:
  TimeModel model_;
  double mixed_ratio_ = 1;
  uint64_t mixed_steps_ = 0;
  uint64_t prefill_steps_ = 0;
  uint64_t decode_steps_ = 0;
};

}  // namespace headrace::worker

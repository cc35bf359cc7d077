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
// 16 steps of each kind. Mixed steps teach nothing. A pure value; one strand.
class CorrectionLearner {
 public:
  explicit CorrectionLearner(TimeModel model) : model_(std::move(model)) {}
  void learn(const StepShape& shape, double seconds);
  const Correction& value() const { return model_.correction; }

 private:
  TimeModel model_;
  uint64_t prefill_steps_ = 0;
  uint64_t decode_steps_ = 0;
};

}  // namespace headrace::worker

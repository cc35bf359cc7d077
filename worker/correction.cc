#include "worker/correction.h"

#include <algorithm>

namespace headrace::worker {
namespace {

constexpr uint64_t kMemory = 16;  // steps
// One absurd measurement (a suspended machine) must not blind the router for long.
constexpr double kRatioMin = 0.01;
constexpr double kRatioMax = 100;

// A plain mean at first, so that the first steps count fully; then exponential. The very first one
// tells nothing: all was cold, it may have been ten times slower, and a worker that looks so slow
// might get no second one.
void average(double& mean, uint64_t& steps, double sample) {
  if (steps++ == 0) return;
  steps = std::min(steps, kMemory + 1);
  mean += (sample - mean) / static_cast<double>(steps - 1);
}

double seconds_of(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

uint32_t CorrectionLearner::paced_tokens(uint32_t most) const {
  uint32_t tokens = most;
  while (tokens > kPacedMin && predict_prefill(model_, tokens, 0) > kStepTarget) tokens /= 2;
  return tokens;
}

Duration CorrectionLearner::token_time(uint32_t tokens) const {
  return predict_prefill(model_, tokens, 0) / tokens;
}

Duration CorrectionLearner::predict(const StepShape& shape) const {
  Duration all{0};
  if (shape.prefill_tokens > 0) {
    all += predict_prefill(model_, shape.prefill_tokens, shape.prefill_after);
  }
  if (shape.decode_rows > 0) {
    all += predict_decode_step(model_, shape.decode_rows, shape.context_tokens);
  }
  return all;
}

void CorrectionLearner::learn(const StepShape& shape, double seconds) {
  const bool prefill = shape.prefill_tokens > 0;
  const bool mixed = prefill && shape.decode_rows > 0;
  CorrectionLearner plain = *this;
  if (!mixed) plain.model_.correction = {};
  const double predicted = seconds_of(plain.predict(shape));
  if (!(predicted > 0) || !(seconds > 0)) return;  // nothing was measured
  const double ratio = std::clamp(seconds / predicted, kRatioMin, kRatioMax);
  if (mixed) {
    average(mixed_ratio_, mixed_steps_, ratio);
  } else if (prefill) {
    average(model_.correction.prefill, prefill_steps_, ratio);
  } else {
    average(model_.correction.decode, decode_steps_, ratio);
  }
}

}  // namespace headrace::worker

#pragma once

#include "kernels/ops.h"

namespace headrace::kernels {

// Shared by the bodies of LogProbs.
inline bool wanted(const LogProbs& op, int64_t row) {
  return op.chosen[row] >= 0 && op.counts[row] > 0;
}

// Writes the outputs of one wanted row, given its largest logit and the sum of e^(logit - largest)
// over the vocabulary. Plain code, the same on every path: one comparison a logit while few are
// asked for.
void report_log_probs(const LogProbs& op, int64_t row, double largest, double sum);

}  // namespace headrace::kernels

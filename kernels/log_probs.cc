#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/math.h"
#include "kernels/ops.h"

// Asked for by few requests and outside of the token path: plain code in double, the same for every
// device, so equal bits.

namespace headrace::kernels {
namespace {

float bounded(double x) { return x > kLogprobMin ? static_cast<float>(x) : kLogprobMin; }

void row(const LogProbs& op, int64_t r) {
  const float* x = op.logits + r * op.stride;
  double largest = -HUGE_VAL;
  for (int32_t i = 0; i < op.vocab; ++i) largest = std::max(largest, double{x[i]});
  double sum = 0;
  for (int32_t i = 0; i < op.vocab; ++i) sum += exp_exact(x[i] - largest);
  const double all = largest + log_exact(sum);
  op.chosen_logprob[r] = bounded(x[op.chosen[r]] - all);

  std::vector<int32_t> order(static_cast<size_t>(op.vocab));
  for (int32_t i = 0; i < op.vocab; ++i) order[static_cast<size_t>(i)] = i;
  const auto count = std::min(op.counts[r], op.vocab);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  for (int32_t i = 0; i < count; ++i) {
    const int32_t id = order[static_cast<size_t>(i)];
    op.top_ids[r * op.top + i] = id;
    op.top_logprobs[r * op.top + i] = bounded(x[id] - all);
  }
}

}  // namespace

// Each logit is read once; an exponential counts as ten operations.
Cost cost(const LogProbs& op) {
  Cost c;
  for (int32_t r = 0; r < op.rows; ++r) {
    if (op.chosen[r] < 0 || op.counts[r] == 0) continue;
    c.activation_bytes += static_cast<uint64_t>(op.vocab) * sizeof(float) + sizeof(float) +
                          static_cast<uint64_t>(op.counts[r]) * (sizeof(int32_t) + sizeof(float));
    c.flops += static_cast<uint64_t>(op.vocab) * 12;
  }
  return c;
}

void reference(const LogProbs& op) {
  for (int64_t r = 0; r < op.rows; ++r) {
    if (op.chosen[r] >= 0 && op.counts[r] > 0) row(op, r);
  }
}

}  // namespace headrace::kernels

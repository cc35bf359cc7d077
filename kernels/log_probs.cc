#include "kernels/log_probs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/math.h"

namespace headrace::kernels {
namespace {

float bounded(double x) { return x > kLogprobMin ? static_cast<float>(x) : kLogprobMin; }

// Of the whole row; NaN where its logits are no numbers, which then all give the floor.
double log_of_sum(double largest, double sum) {
  return sum > 0 && sum < HUGE_VAL ? largest + log_exact(sum) : std::nan("");
}

// NaN comes last, so that the order is one.
float rank(float logit) { return std::isnan(logit) ? -HUGE_VALF : logit; }

void write(const LogProbs& op, int64_t r, const int32_t* ids, int32_t known, double log_sum) {
  const float* x = op.logits + r * op.stride;
  op.chosen_logprob[r] = bounded(x[op.chosen[r]] - log_sum);
  for (int32_t i = 0; i < op.counts[r]; ++i) {
    const int32_t id = i < known ? ids[i] : -1;
    op.top_ids[r * op.top + i] = id;
    op.top_logprobs[r * op.top + i] = id < 0 ? kLogprobMin : bounded(x[id] - log_sum);
  }
}

void reference_row(const LogProbs& op, int64_t r) {
  const float* x = op.logits + r * op.stride;
  double largest = -HUGE_VAL;
  for (int32_t i = 0; i < op.vocab; ++i) largest = std::max(largest, double{x[i]});
  double sum = 0;
  for (int32_t i = 0; i < op.vocab; ++i) sum += exp_exact(x[i] - largest);
  std::vector<int32_t> order(static_cast<size_t>(op.vocab));
  for (int32_t i = 0; i < op.vocab; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(),
                   [x](int32_t a, int32_t b) { return rank(x[a]) > rank(x[b]); });
  write(op, r, order.data(), op.vocab, log_of_sum(largest, sum));
}

}  // namespace

// The best so far stand sorted; almost every logit fails against the last of them.
void report_log_probs(const LogProbs& op, int64_t r, double largest, double sum) {
  const float* x = op.logits + r * op.stride;
  const auto most = static_cast<size_t>(std::min(op.counts[r], op.vocab));
  std::vector<int32_t> best;
  best.reserve(most + 1);
  float least = 0;  // to be beaten, once there are `most`
  for (int32_t i = 0; i < op.vocab; ++i) {
    const float value = rank(x[i]);
    if (best.size() == most && !(value > least)) continue;
    const auto at = std::upper_bound(best.begin(), best.end(), value,
                                     [x](float v, int32_t id) { return v > rank(x[id]); });
    best.insert(at, i);
    if (best.size() > most) best.pop_back();
    least = rank(x[best.back()]);
  }
  write(op, r, best.data(), static_cast<int32_t>(best.size()), log_of_sum(largest, sum));
}

// Each logit is read once; an exponential counts as ten operations.
Cost cost(const LogProbs& op) {
  const int32_t* const counts = op.host_counts != nullptr ? op.host_counts : op.counts;
  Cost c;
  for (int32_t r = 0; r < op.rows; ++r) {
    // Which rows have got no token is known on the device alone.
    if (op.host_counts != nullptr ? op.host_counts[r] == 0 : !wanted(op, r)) continue;
    c.activation_bytes += static_cast<uint64_t>(op.vocab) * sizeof(float) + sizeof(float) +
                          static_cast<uint64_t>(counts[r]) * (sizeof(int32_t) + sizeof(float));
    c.flops += static_cast<uint64_t>(op.vocab) * 12;
  }
  return c;
}

void reference(const LogProbs& op) {
  for (int64_t r = 0; r < op.rows; ++r) {
    if (wanted(op, r)) reference_row(op, r);
  }
}

}  // namespace headrace::kernels

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/sample_select.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/philox.h"

namespace headrace::kernels {
namespace {

struct Candidate {
  double weight;
  int32_t id;
};

// Keeps the first `n`.
void cut(std::vector<Candidate>& c, size_t n) { c.resize(std::min(c.size(), n)); }

double sum_of(const std::vector<Candidate>& c) {
  double sum = 0;
  for (const auto& x : c) sum += x.weight;
  return sum;
}

int32_t sample_row(const float* x, int32_t vocab, const SampleRow& row) {
  float largest = -HUGE_VALF;
  for (int32_t i = 0; i < vocab; ++i) {
    if (std::isnan(x[i])) return -1;
    largest = std::max(largest, x[i]);
  }
  if (!std::isfinite(largest)) return -1;
  if (greedy(row)) return static_cast<int32_t>(std::find(x, x + vocab, largest) - x);

  std::vector<Candidate> c;
  for (int32_t i = 0; i < vocab; ++i) {
    c.push_back({exp_exact((double{x[i]} - largest) / row.temperature), i});
  }
  std::stable_sort(c.begin(), c.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  if (row.top_k > 0) cut(c, static_cast<size_t>(row.top_k));
  if (row.top_p < 1) {
    const double enough = row.top_p * sum_of(c);
    double sum = 0;
    size_t n = 0;
    while (n < c.size() && (n == 0 || sum < enough)) sum += c[n++].weight;
    cut(c, n);
  }
  const double least = row.min_p * c[0].weight;
  while (c.size() > 1 && c.back().weight < least) c.pop_back();
  const double target = uniform(row.seed, row.index) * sum_of(c);
  double passed = 0;
  for (const auto& candidate : c) {
    passed += candidate.weight;
    if (passed > target) return candidate.id;
  }
  return c.back().id;
}

}  // namespace

// Each logit is read once; an exponential counts as ten operations.
Cost cost(const Sample& op) {
  Cost c;
  c.activation_bytes =
      static_cast<uint64_t>(op.rows) *
      (static_cast<uint64_t>(op.vocab) * sizeof(float) + sizeof(int32_t) + sizeof(SampleRow));
  const SampleRow* const params = op.host_params != nullptr ? op.host_params : op.params;
  for (int32_t r = 0; r < op.rows; ++r) {
    c.flops += static_cast<uint64_t>(op.vocab) * (greedy(params[r]) ? 1 : 12);
  }
  return c;
}

void reference(const Sample& op) {
  for (int64_t r = 0; r < op.rows; ++r) {
    op.ids[r] = sample_row(op.logits + r * op.stride, op.vocab, op.params[r]);
  }
}

}  // namespace headrace::kernels

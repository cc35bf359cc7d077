#pragma once

#include "kernels/cpu/vector_math.h"
#include "kernels/log_probs.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

// Logits whose exponentials are summed in f32, sixteen side by side; such sums are added in double.
constexpr int32_t kLogProbsSlice = 1024;

float largest_logit(const float* x, int32_t n) {
  Lanes top = splat(-__builtin_inff());
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) top = max(load(x + i), top);
  float largest = reduce_max(top);
  for (; i < n; ++i) {
    if (x[i] > largest) largest = x[i];
  }
  return largest;
}

double sum_of_exponentials(const float* x, int32_t n, float largest) {
  const Lanes top = splat(largest);
  double sum = 0;
  int32_t i = 0;
  while (i + 16 <= n) {
    const int32_t end = n - i < kLogProbsSlice ? n : i + kLogProbsSlice;
    Lanes part = splat(0);
    for (; i + 16 <= end; i += 16) part = add(part, exp(sub(load(x + i), top)));
    sum += reduce_add(part);
  }
  float rest[16];
  store(rest, exp(sub(load(x + i, n - i), top)));
  for (int32_t k = 0; i + k < n; ++k) sum += rest[k];
  return sum;
}

void log_probs_body(const LogProbs& op, ThreadPool& pool) {
  auto rows = [&op](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      if (!wanted(op, r)) continue;
      const float* x = op.logits + r * op.stride;
      const float largest = largest_logit(x, op.vocab);
      const double sum = sum_of_exponentials(x, op.vocab, largest);
      report_log_probs(op, r, largest, sum);
    }
  };
  parallel_for(pool, op.rows, 1, rows);
}

}  // namespace
}  // namespace headrace::kernels

#pragma once

#include "kernels/cpu/sample_select.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

struct Largest {
  float value;
  bool valid;  // no NaN anywhere, and the largest logit is finite
};

Largest find_largest(const float* x, int32_t n) {
  const Ints magnitude = splat_int(0x7fffffff);
  Lanes top = splat(-__builtin_inff());
  Ints bits_top = splat_int(0);  // NaN has the largest magnitude of all bit patterns
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Lanes v = load(x + i);
    top = max(v, top);
    bits_top = max(and_bits(bits(v), magnitude), bits_top);
  }
  Largest l{reduce_max(top), reduce_max(bits_top) <= 0x7f800000};
  for (; i < n; ++i) {
    if (x[i] > l.value) l.value = x[i];
    if (x[i] != x[i]) l.valid = false;
  }
  l.valid = l.valid && l.value - l.value == 0;
  return l;
}

int32_t first_equal(const float* x, int32_t n, float value) {
  const Lanes wanted = splat(value);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const uint32_t mask = equal(load(x + i), wanted);
    if (mask) return i + __builtin_ctz(mask);
  }
  while (i < n && x[i] != value) ++i;
  return i;
}

void weigh_logits(const float* x, int32_t n, float largest, float temperature, float* to) {
  const Lanes top = splat(largest), t = splat(temperature);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(to + i, exp(div(sub(load(x + i), top), t)));
  if (i < n) store(to + i, exp(div(sub(load(x + i, n - i), top), t)), n - i);
}

int32_t sample_row(const Sample& op, int64_t r, std::byte* scratch) {
  const float* x = op.logits + r * op.stride;
  const Largest l = find_largest(x, op.vocab);
  if (!l.valid) return -1;
  const SampleRow row = op.params[r];
  if (greedy(row)) return first_equal(x, op.vocab, l.value);
  const SampleMemory memory = sample_memory(scratch, op.vocab);
  weigh_logits(x, op.vocab, l.value, row.temperature, memory.weights);
  return select_token(memory, op.vocab, row);
}

void sample_body(const Sample& op, ThreadPool& pool, std::byte* scratch) {
  const size_t each = sample_memory_bytes(op.vocab);
  auto rows = [&op, scratch, each](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r) {
      op.ids[r] = sample_row(op, r, scratch + each * static_cast<size_t>(thread));
    }
  };
  parallel_for(pool, op.rows, 1, rows);
}

}  // namespace
}  // namespace headrace::kernels

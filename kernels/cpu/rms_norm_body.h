#pragma once

#include "kernels/cpu/quantize.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

// Lane j sums the squares of x[j], x[j+16], ... in order.
float inverse_rms(const float* x, int32_t dim, float eps) {
  Lanes sum = splat(0);
  int32_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    const Lanes v = load(x + i);
    sum = fma(v, v, sum);
  }
  if (i < dim) {
    const Lanes v = load(x + i, dim - i);
    sum = fma(v, v, sum);
  }
  return 1.0f / square_root(reduce_add(sum) / static_cast<float>(dim) + eps);
}

void rms_norm_row(const RmsNorm& op, int64_t r) {
  const int32_t dim = op.dim;
  const float* x = op.x + r * dim;
  float* y = op.y.f32 ? op.y.f32 + r * dim : nullptr;
  const Lanes scale = splat(inverse_rms(x, dim, op.eps));
  int32_t i = 0;
  if (op.y.q) {  // dim is a multiple of 32
    QuantBlock* q = op.y.q + r * (dim / 32);
    for (; i < dim; i += 32) {
      const Lanes a = mul(mul(load(x + i), scale), load(op.gain + i));
      const Lanes b = mul(mul(load(x + i + 16), scale), load(op.gain + i + 16));
      quantize_block(a, b, q + i / 32);
      if (y) {
        store(y + i, a);
        store(y + i + 16, b);
      }
    }
    return;
  }
  if (!y) return;
  for (; i + 16 <= dim; i += 16) store(y + i, mul(mul(load(x + i), scale), load(op.gain + i)));
  if (i < dim) {
    const int n = dim - i;
    store(y + i, mul(mul(load(x + i, n), scale), load(op.gain + i, n)), n);
  }
}

void rms_norm_body(const RmsNorm& op, ThreadPool& pool) {
  constexpr int64_t kGrainFloats = 8192;  // below it, waking a thread costs more than it saves
  auto rows = [&op](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) rms_norm_row(op, r);
  };
  parallel_for(pool, op.rows, kGrainFloats / (op.dim < kGrainFloats ? op.dim : kGrainFloats), rows);
}

}  // namespace
}  // namespace headrace::kernels

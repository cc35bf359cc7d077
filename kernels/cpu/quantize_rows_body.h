#pragma once

#include "kernels/cpu/quantize.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

void quantize_rows_body(const QuantizeRows& op, ThreadPool& pool) {
  constexpr int64_t kGrain = 128;  // blocks; fewer are not worth waking a thread for
  auto blocks = [&op](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; b++) {
      const float* x = op.x + b * kGroup;
      quantize_block(load(x), load(x + kGroup / 2), op.y + b);
    }
  };
  parallel_for(pool, int64_t{op.rows} * (op.dim / kGroup), kGrain, blocks);
}

}  // namespace
}  // namespace headrace::kernels

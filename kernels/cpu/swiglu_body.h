#pragma once

#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

LANES_FN Lanes gated(Lanes gate, Lanes up) {
  const Lanes e = exp(mul(gate, splat(-1.0f)));
  return mul(div(gate, add(splat(1.0f), e)), up);
}

// 32 values, in the forms that are asked for.
LANES_FN void gate_block(const float* gate, const float* up, QuantBlock* q, float* y) {
  const Lanes a = gated(load(gate), load(up));
  const Lanes c = gated(load(gate + 16), load(up + 16));
  if (q) quantize_block(a, c, q);
  if (y) {
    store(y, a);
    store(y + 16, c);
  }
}

// Pairs of tiles, gate before up.
void gate_results(const MatMulSwiGlu& op, const TileResults& results) {
  const int64_t ffn = op.w.rows / 2;
  for (int t = 0; t < results.tokens; t++) {
    const int64_t row = results.token + t;
    const float* y = results.y + t * results.stride;
    for (int n = 0; n < results.rows; n += 2 * kTileRows) {
      const int64_t at = (results.row + n) / 2;
      gate_block(y + n, y + n + kTileRows, op.y.q ? op.y.q + (row * ffn + at) / kGroup : nullptr,
                 op.y.f32 ? op.y.f32 + row * ffn + at : nullptr);
    }
  }
}

// Values [32b, 32b + 32) of a row.
void swiglu_block(const SwiGlu& op, int64_t row, int64_t b) {
  const int64_t at = b * 32;
  const float *gate = op.x + 2 * row * op.ffn + at, *up = gate + op.ffn;
  float* y = op.y.f32 ? op.y.f32 + row * op.ffn + at : nullptr;
  const auto left = static_cast<int>(op.ffn - at);
  if (left >= 32) {
    return gate_block(gate, up, op.y.q ? op.y.q + row * (op.ffn / 32) + b : nullptr, y);
  }
  if (!y) return;
  for (int i = 0; i < left; i += 16) {
    const int n = left - i < 16 ? left - i : 16;
    store(y + i, gated(load(gate + i, n), load(up + i, n)), n);
  }
}

void swiglu_body(const SwiGlu& op, ThreadPool& pool) {
  constexpr int64_t kGrainBlocks = 64;  // 2048 values, a few hundred nanoseconds
  const int64_t per_row = (int64_t{op.ffn} + 31) / 32;
  auto blocks = [&op, per_row](int64_t begin, int64_t end, int) {
    int64_t row = begin / per_row, b = begin % per_row;
    for (int64_t i = begin; i < end; ++i) {
      swiglu_block(op, row, b);
      if (++b == per_row) {
        b = 0;
        ++row;
      }
    }
  };
  parallel_for(pool, op.rows * per_row, kGrainBlocks, blocks);
}

}  // namespace
}  // namespace headrace::kernels

#include <cmath>

#include "kernels/ops.h"

namespace headrace::kernels {

// Reads a float, writes 1.25 bytes: memory-bound, yet small beside the product it serves.
Cost cost(const QuantizeRows& op) {
  const auto n = static_cast<uint64_t>(op.rows) * static_cast<uint64_t>(op.dim);
  Cost c;
  c.activation_bytes = n * sizeof(float) + n / kGroup * sizeof(QuantBlock);
  c.flops = 3 * n;  // magnitude, product, sum
  return c;
}

namespace {

// The definition itself, in the f32 arithmetic it prescribes: every body gives these bits.
void quantize(const float* x, QuantBlock& to) {
  to = {};
  float largest = 0;
  for (int i = 0; i < kGroup; i++) {
    const float magnitude = std::fabs(x[i]);
    // A NaN, once met, stays.
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
    if (std::isnan(largest)) break;
  }
  if (!std::isfinite(largest)) {
    to.scale = largest;
    return;
  }
  if (largest < kQuantZero) return;
  const float inverse = 127.0f / largest;
  to.scale = largest / 127.0f;
  for (int i = 0; i < kGroup; i++) {
    to.q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    to.sum += to.q[i];
  }
}

}  // namespace

void reference(const QuantizeRows& op) {
  const int64_t blocks = int64_t{op.rows} * (op.dim / kGroup);
  for (int64_t b = 0; b < blocks; b++) quantize(op.x + b * kGroup, op.y[b]);
}

}  // namespace headrace::kernels

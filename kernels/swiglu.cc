#include <vector>

#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {

// Memory-bound as counted; the exponential is counted as eight operations.
Cost cost(const SwiGlu& op) {
  const auto n = static_cast<uint64_t>(op.rows) * static_cast<uint64_t>(op.ffn);
  Cost c;
  c.activation_bytes = 2 * n * sizeof(float) + rows_bytes(op.y, op.rows, op.ffn);
  c.flops = 11 * n;
  return c;
}

void reference(const SwiGlu& op) {
  std::vector<float> y(static_cast<size_t>(op.rows) * static_cast<size_t>(op.ffn));
  for (int64_t r = 0; r < op.rows; ++r) {
    const float *gate = op.x + 2 * r * op.ffn, *up = gate + op.ffn;
    for (int32_t i = 0; i < op.ffn; ++i) {
      const double g = gate[i];
      y[static_cast<size_t>(r * op.ffn + i)] = static_cast<float>(g / (1 + exp_exact(-g)) * up[i]);
    }
  }
  deliver_rows(y.data(), op.rows, op.ffn, op.y);
}

}  // namespace headrace::kernels

#include <cmath>
#include <vector>

#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {

// Memory-bound: about four operations for each eight bytes.
Cost cost(const RmsNorm& op) {
  const auto n = static_cast<uint64_t>(op.rows) * static_cast<uint64_t>(op.dim);
  Cost c;
  c.weight_bytes = static_cast<uint64_t>(op.dim) * sizeof(float);
  c.activation_bytes = n * sizeof(float) + rows_bytes(op.y, op.rows, op.dim);
  c.flops = 4 * n;
  return c;
}

void reference(const RmsNorm& op) {
  std::vector<float> y(static_cast<size_t>(op.rows) * static_cast<size_t>(op.dim));
  for (int64_t r = 0; r < op.rows; ++r) {
    const float* x = op.x + r * op.dim;
    double sum = 0;
    for (int32_t i = 0; i < op.dim; ++i) sum += double{x[i]} * x[i];
    const double scale = 1 / std::sqrt(sum / op.dim + op.eps);
    for (int32_t i = 0; i < op.dim; ++i) {
      y[static_cast<size_t>(r * op.dim + i)] = static_cast<float>(x[i] * scale * op.gain[i]);
    }
  }
  deliver_rows(y.data(), op.rows, op.dim, op.y);
}

}  // namespace headrace::kernels

#include <algorithm>
#include <vector>

#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {

// Each weight crosses the bus once, whatever the number of rows: memory-bound until the rows'
// multiply-adds take longer than the weights (README).
Cost cost(const MatMul& op) {
  const auto rows = static_cast<uint64_t>(op.rows);
  const auto n = static_cast<uint64_t>(op.w.rows);
  const auto k = static_cast<uint64_t>(op.w.cols);
  Cost c;
  c.weight_bytes = op.w.bytes();
  c.activation_bytes =
      rows * (product_row_bytes(op.x, op.w) + sizeof(float) * n * (op.add ? 2 : 1));
  c.flops = 2 * rows * n * k;
  return c;
}

namespace {

// Four sums that a compiler may keep side by side; still plain double accumulation.
double dot(const float* w, const double* x, int32_t n) {
  double sum[4] = {};
  int32_t k = 0;
  for (; k + 4 <= n; k += 4) {
    for (int i = 0; i < 4; i++) sum[i] += static_cast<double>(w[k + i]) * x[k + i];
  }
  for (; k < n; k++) sum[0] += static_cast<double>(w[k]) * x[k];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

}  // namespace

void reference(const MatMul& op) {
  const auto k = static_cast<size_t>(op.w.cols);
  std::vector<double> x(static_cast<size_t>(op.rows) * k);
  if (op.x.f32 != nullptr) {  // the reference device's, of whole models
    std::copy_n(op.x.f32, x.size(), x.begin());
  } else {
    for (size_t i = 0; i < x.size(); i++) x[i] = row_at(op.x, i / k, i % k, k);
  }
  std::vector<float> w(k);
  for (int32_t n = 0; n < op.w.rows; n++) {
    unpack_row(op.w, n, w.data());
    for (int32_t r = 0; r < op.rows; r++) {
      const double sum = dot(w.data(), x.data() + static_cast<size_t>(r) * k, op.w.cols);
      float& y = op.y[r * op.stride + n];
      y = static_cast<float>(op.add ? static_cast<double>(y) + sum : sum);
    }
  }
}

}  // namespace headrace::kernels

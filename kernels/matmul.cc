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

constexpr int32_t kAtOnce = 8;  // rows of weights that x is read for: it is the larger of the two
static_assert(kAtOnce % 2 == 0);

}  // namespace

void reference(const MatMul& op) {
  const auto k = static_cast<size_t>(op.w.cols);
  std::vector<double> x(static_cast<size_t>(op.rows) * k);
  if (op.x.f32 != nullptr) {  // the reference device's, of whole models
    std::copy_n(op.x.f32, x.size(), x.begin());
  } else {
    for (size_t i = 0; i < x.size(); i++) x[i] = row_at(op.x, i / k, i % k, k);
  }
  std::vector<float> row(k);
  std::vector<double> w(kAtOnce * k);
  for (int32_t n = 0; n < op.w.rows; n += kAtOnce) {
    const int32_t count = std::min(kAtOnce, op.w.rows - n);
    for (int32_t i = 0; i < count; i++) {
      unpack_row(op.w, n + i, row.data());
      std::copy(row.begin(), row.end(), w.begin() + static_cast<int64_t>(k) * i);
    }
    for (int32_t r = 0; r < op.rows; r++) {
      double sum[kAtOnce];
      for (int32_t i = 0; i < count; i += 2)
        dot_two(w.data() + static_cast<size_t>(i) * k, w.data() + static_cast<size_t>(i + 1) * k,
                x.data() + static_cast<size_t>(r) * k, k, sum + i);
      float* y = op.y + int64_t{r} * op.stride + n;
      for (int32_t i = 0; i < count; i++)
        y[i] = static_cast<float>(op.add ? static_cast<double>(y[i]) + sum[i] : sum[i]);
    }
  }
}

}  // namespace headrace::kernels

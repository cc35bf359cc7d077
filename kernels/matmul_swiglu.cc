#include <vector>

#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {

// The product's bytes and operations without its output, and SwiGlu's without its input.
Cost cost(const MatMulSwiGlu& op) {
  const auto rows = static_cast<uint64_t>(op.rows);
  const auto n = static_cast<uint64_t>(op.w.rows);
  const auto k = static_cast<uint64_t>(op.w.cols);
  Cost c;
  c.weight_bytes = op.w.bytes();
  c.activation_bytes = rows * product_row_bytes(op.x, op.w) + rows_bytes(op.y, op.rows, op.w.rows / 2);
  c.flops = rows * (2 * n * k + 11 * n / 2);
  return c;
}

void reference(const MatMulSwiGlu& op) {
  std::vector<float> halves(static_cast<size_t>(op.rows) * static_cast<size_t>(op.w.rows));
  reference(MatMul{.w = op.w,
                   .x = op.x,
                   .rows = op.rows,
                   .y = halves.data(),
                   .stride = op.w.rows,
                   .add = false});
  reference(SwiGlu{.x = halves.data(), .rows = op.rows, .ffn = op.w.rows / 2, .y = op.y});
}

}  // namespace headrace::kernels

#include "kernels/reference_rows.h"

#include <algorithm>

#include "kernels/ops.h"

namespace headrace::kernels {

void deliver_rows(const float* values, int32_t rows, int32_t width, const RowsOut& to) {
  if (to.f32) std::copy_n(values, static_cast<int64_t>(rows) * width, to.f32);
  if (to.q) reference(QuantizeRows{values, rows, width, to.q});
}

uint64_t rows_bytes(const RowsOut& to, int64_t rows, int64_t width) {
  uint64_t bytes = 0;
  if (to.f32) bytes += static_cast<uint64_t>(rows * width) * sizeof(float);
  if (to.q) bytes += static_cast<uint64_t>(rows * width / 32) * sizeof(QuantBlock);
  return bytes;
}

}  // namespace headrace::kernels

#include "kernels/reference_rows.h"

#include <algorithm>

#include "kernels/half.h"
#include "kernels/ops.h"

namespace headrace::kernels {

namespace {

void deliver_bf16(const float* values, int32_t rows, int32_t width, const RowsOut& to) {
  const int64_t pitch = bf16_pitch(width);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < pitch; c++)
      to.bf16[r * pitch + c] = c < width ? float_to_bf16(values[r * width + c]) : uint16_t{0};
    for (int64_t g = 0; g < pitch / 32; g++) {
      double sum = 0;
      for (int64_t c = g * 32; c < g * 32 + 32; c++) sum += bf16_to_float(to.bf16[r * pitch + c]);
      to.sums[r * pitch / 32 + g] = static_cast<float>(sum);
    }
  }
}

}  // namespace

void deliver_rows(const float* values, int32_t rows, int32_t width, const RowsOut& to) {
  if (to.f32) std::copy_n(values, static_cast<int64_t>(rows) * width, to.f32);
  if (to.bf16) deliver_bf16(values, rows, width, to);
  if (to.q) reference(QuantizeRows{values, rows, width, to.q});
}

double row_at(const Rows& rows, size_t r, size_t c, size_t width) {
  if (rows.f32 != nullptr) return rows.f32[r * width + c];
  if (rows.bf16 != nullptr)
    return bf16_to_float(
        rows.bf16[r * static_cast<size_t>(bf16_pitch(static_cast<int64_t>(width))) + c]);
  const QuantBlock& b = rows.q[r * ((width + 31) / 32) + c / 32];
  return static_cast<double>(b.scale) * b.q[c % 32];
}

uint64_t row_bytes(const Rows& rows, uint64_t width) {
  if (rows.f32 != nullptr) return sizeof(float) * width;
  if (rows.bf16 != nullptr)
    return 2 * static_cast<uint64_t>(bf16_pitch(static_cast<int64_t>(width)));
  return sizeof(QuantBlock) * ((width + 31) / 32);
}

uint64_t product_row_bytes(const Rows& rows, const Matrix& w) {
  const uint64_t bytes = row_bytes(rows, static_cast<uint64_t>(w.cols));
  if (rows.bf16 == nullptr || w.type != WeightType::kW4Min) return bytes;
  return bytes + static_cast<uint64_t>(bf16_pitch(w.cols)) / 32 * sizeof(float);
}

uint64_t rows_bytes(const RowsOut& to, int64_t rows, int64_t width) {
  uint64_t bytes = 0;
  if (to.f32) bytes += static_cast<uint64_t>(rows * width) * sizeof(float);
  if (to.q) bytes += static_cast<uint64_t>(rows * width / 32) * sizeof(QuantBlock);
  if (to.bf16) bytes += static_cast<uint64_t>(rows * bf16_pitch(width) / 32) * (32 * 2 + 4);
  return bytes;
}

}  // namespace headrace::kernels

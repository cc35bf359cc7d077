#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/context.h"
#include "kernels/half.h"
#include "kernels/matrix_fragments.h"
#include "kernels/ops.h"

// Weights as others' products take them (gemm_library.h): bf16, row after row.

namespace headrace::cuda {

// Strips [first, first + strips) of w, in Tiling::kFragments and of any type, as rows of
// kernels::bf16_pitch(w.cols); what lies behind K is zero. Row r of y is row 16 first + r; if w is
// paired, gates 8 first + r come first, then as many ups. Each is unpack_row's, to nearest even.
struct Dequantize {
  kernels::Matrix w;
  int32_t first = 0;
  int32_t strips = 0;
  uint16_t* y = nullptr;  // [16 strips, pitch], 16-byte aligned
};

cudaError_t enqueue(const Dequantize& op, const Context& context);

inline kernels::Cost cost(const Dequantize& op) {
  const auto strips = static_cast<uint64_t>(op.strips);
  const auto pitch = static_cast<uint64_t>(kernels::bf16_pitch(op.w.cols));
  return {.weight_bytes = strips * op.w.tile_bytes(),
          .activation_bytes = strips * kernels::kStripRows * pitch * sizeof(uint16_t),
          .flops = strips * kernels::kStripRows * pitch};
}

// The row of w that is row r of y; w.rows or more: there is none.
inline int32_t source_row(const Dequantize& op, int32_t r) {
  if (!op.w.paired) return kernels::kStripRows * op.first + r;
  const int32_t half = kernels::kStripRows / 2 * op.strips;
  const int32_t in = kernels::kStripRows / 2 * op.first + r % half;
  return in >= op.w.rows / 2 ? op.w.rows : in + (r >= half ? op.w.rows / 2 : 0);
}

inline void reference(const Dequantize& op) {
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(op.w.cols));
  std::vector<float> row(static_cast<size_t>(op.w.cols));
  for (int32_t r = 0; r < kernels::kStripRows * op.strips; r++) {
    uint16_t* y = op.y + static_cast<size_t>(r) * pitch;
    std::fill_n(y, pitch, uint16_t{0});
    const int32_t from = source_row(op, r);
    if (from >= op.w.rows) continue;
    kernels::unpack_row(op.w, from, row.data());
    for (size_t k = 0; k < row.size(); k++) y[k] = kernels::float_to_bf16(row[k]);
  }
}

}  // namespace headrace::cuda

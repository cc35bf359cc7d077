#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/context.h"
#include "kernels/matrix_fragments.h"
#include "kernels/ops.h"

// Operations on rows of activations, each row by itself (structs, costs and references:
// kernels/ops.h). They move bytes and little else. Widths are multiples of 4 floats, rows of f32
// follow one another without gaps, every address is 16-byte aligned; `RowsOut.q` is refused, and
// `bf16` without `sums` or the other way round. A row's result depends on that row alone.

namespace headrace::cuda {

// Table in Tiling::kFragments, unpaired, of any type; `y` is exactly what unpack_fragment_row
// gives. Ids that are negative, or not below the vocabulary, give zeros.
cudaError_t enqueue(const kernels::Embed& op, const Context& context);

// Sum of squares in f32: within a thread, a warp, a block, in an order of `dim` alone. `gain` is
// read before the launch in front has ended.
constexpr int32_t kRmsNormDimMax = 16384;
cudaError_t enqueue(const kernels::RmsNorm& op, const Context& context);

// For gate and up that do not stand paired in one matrix; else MatMulSwiGlu does it.
cudaError_t enqueue(const kernels::SwiGlu& op, const Context& context);

// Columns [first, first + op.ffn) of rows of `width`, `first` a multiple of 32, and so is op.ffn
// but for the last ones.
struct SwiGluPart {
  kernels::SwiGlu op;
  int32_t first = 0;
  int32_t width = 0;
};
cudaError_t enqueue(const SwiGluPart& part, const Context& context);

// `y` may not overlap `x`.
cudaError_t enqueue(const kernels::GatherRows& op, const Context& context);

}  // namespace headrace::cuda

#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/row_values.h"
#include "kernels/cuda/rows.h"

// Four neighbouring values a thread.

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const float* x, const int32_t* index, unsigned dim, unsigned blocks_of_row,
                       float* y) {
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x / blocks_of_row;
  const size_t at = (blockIdx.x % blocks_of_row * kThreads + size_t{threadIdx.x}) * kLaneValues;
  if (at >= dim) return;
  const int32_t from = index[row];
  uint4 v = make_uint4(0, 0, 0, 0);
  if (from >= 0) v = ld16(x + static_cast<size_t>(from) * dim + at);
  st16(y + row * dim + at, v);
}

}  // namespace

cudaError_t enqueue(const kernels::GatherRows& op, const Context& context) {
  if (!row_width(op.dim) || op.rows < 0 || !vector_aligned(op.x) || !vector_aligned(op.y)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.dim == 0) return cudaSuccess;
  const unsigned vectors = static_cast<unsigned>(op.dim) / kLaneValues;
  const unsigned blocks_of_row = (vectors + kThreads - 1) / kThreads;
  const size_t blocks = static_cast<size_t>(op.rows) * blocks_of_row;
  if (blocks > kGridMax) return cudaErrorInvalidValue;
  return launch_dependent("gather_rows", context.stream, dim3(static_cast<unsigned>(blocks)),
                          dim3(kThreads), 0, gather_rows_kernel, op.x, op.index,
                          static_cast<unsigned>(op.dim), blocks_of_row, op.y);
}

}  // namespace headrace::cuda

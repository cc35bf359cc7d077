#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/row_values.h"
#include "kernels/cuda/rows.h"

// Four neighbouring values a thread: gate and up are read once, the result is written once.

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr float kLog2E = 1.44269504088896340736f;

// x / (1 + e^-x). Far below zero the power is infinite and the quotient zero, as it should be.
__device__ __forceinline__ float silu(float x) { return x / (1.0f + fast_exp2(-x * kLog2E)); }

// Where a part's columns lie in rows of y.
struct Place {
  unsigned first;
  unsigned span;  // columns that are written, with what is behind the last of a row
  unsigned width;
  unsigned pitch;
};

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const float* x, unsigned ffn, Place place, unsigned blocks_of_row,
                  kernels::RowsOut y) {
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x / blocks_of_row;
  const unsigned vector = blockIdx.x % blocks_of_row * kThreads + threadIdx.x;
  const size_t at = size_t{vector} * kLaneValues;
  float4 v = make_float4(0, 0, 0, 0);
  if (at < ffn) {
    const float4 gate = floats(ld_stream16(x + 2 * row * ffn + at));
    const float4 up = floats(ld_stream16(x + (2 * row + 1) * ffn + at));
    v = make_float4(silu(gate.x) * up.x, silu(gate.y) * up.y, silu(gate.z) * up.z,
                    silu(gate.w) * up.w);
  }
  // Past the pitch nothing is written.
  const unsigned to =
      at < place.span ? place.first / kLaneValues + vector : place.pitch / kLaneValues;
  deliver(y, row, to, place.width, place.pitch, v);
}

}  // namespace

cudaError_t enqueue(const SwiGluPart& part, const Context& context) {
  const kernels::SwiGlu& op = part.op;
  if (!row_width(op.ffn) || !row_width(part.width) || op.rows < 0 || !deliverable(op.y) ||
      !vector_aligned(op.x) || part.first < 0 || part.first % 32 != 0 ||
      op.ffn > part.width - part.first || (op.ffn % 32 != 0 && op.ffn != part.width - part.first)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.ffn == 0) return cudaSuccess;
  const auto ffn = static_cast<unsigned>(op.ffn);
  const bool last = part.first + op.ffn == part.width;
  Place place{static_cast<unsigned>(part.first), ffn, static_cast<unsigned>(part.width),
              static_cast<unsigned>(kernels::bf16_pitch(part.width))};
  if (last) place.span = place.pitch - place.first;
  const unsigned blocks_of_row = (place.span / kLaneValues + kThreads - 1) / kThreads;
  const size_t blocks = static_cast<size_t>(op.rows) * blocks_of_row;
  if (blocks > kGridMax) return cudaErrorInvalidValue;
  return launch_dependent("swiglu", context.stream, dim3(static_cast<unsigned>(blocks)),
                          dim3(kThreads), 0, swiglu_kernel, op.x, ffn, place, blocks_of_row, op.y);
}

cudaError_t enqueue(const kernels::SwiGlu& op, const Context& context) {
  return enqueue(SwiGluPart{op, 0, op.ffn}, context);
}

}  // namespace headrace::cuda

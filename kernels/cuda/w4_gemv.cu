#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/ops.h"

// Decode's product: every weight is read once and used once, so memory is the roof. A warp has four
// rows, a lane a group of 32 weights of each: 16 bytes a row and lane, 512 bytes in a row a warp.
// The next groups are on their way while these are multiplied; the first are asked for before x is
// there.
//
// A quant q becomes the bf16 128 + q by setting bits, and stays so: a group's sum is scale (sum
// (128 + q) x - 136 sum x), where the last sum serves all four rows.
//
// x lies in shared memory as four planes: plane j has vector j (eight elements) of every group.
// Lanes that read vector j of neighbouring groups then touch neighbouring banks, and the planes'
// padding does the same for those that write.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = 4;
constexpr unsigned kThreads = kWarp * kWarps;
constexpr unsigned kRows = 4;  // of a warp
constexpr unsigned kBlockRows = kRows * kWarps;
constexpr unsigned kVectorBytes = 16;
constexpr unsigned kPlanes = 4;  // vectors of eight x in a group

// Bytes from plane to plane: 32 more than whole rows of all 32 banks.
__device__ __host__ __forceinline__ unsigned plane_bytes(unsigned groups) {
  return (groups * kVectorBytes + 127) / 128 * 128 + 32;
}

struct Weights {
  uint4 quants[kRows];
  uint16_t scales[kRows];
};

// Group `group` of the warp's rows; zeros past the end.
__device__ __forceinline__ void load(Weights& held, const W4Matrix& w, unsigned row,
                                     unsigned group) {
  const unsigned groups = w.columns / kW4Group;
#pragma unroll
  for (unsigned r = 0; r < kRows; r++) {
    held.quants[r] = make_uint4(0, 0, 0, 0);
    held.scales[r] = 0;
    if (row + r < w.rows && group < groups) {
      const size_t at = static_cast<size_t>(row + r) * groups + group;
      held.quants[r] = ld_stream16(w.quants + at * (kW4Group / 8));
      held.scales[r] = w.scales[at];
    }
  }
}

// sum + the products of eight quants and eight x.
__device__ __forceinline__ float multiply(uint32_t quants, const float2 (&x)[4], float sum) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    // (quants & mask) | bits: the bf16 128 with a quant in its last places, twice.
    const float2 q = bf16s_to_floats(lop3<0xea>(quants >> (4 * i), 0x000f000fu, 0x43004300u));
    sum = fmaf(q.x, x[i].x, sum);
    sum = fmaf(q.y, x[i].y, sum);
  }
  return sum;
}

__device__ __forceinline__ uint32_t word(const uint4& v, unsigned i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Adds one group of each row to the rows' sums.
__device__ __forceinline__ void add_group(float (&sums)[kRows], const Weights& held,
                                          const unsigned char* x, unsigned plane) {
  float products[kRows] = {};
  float x_sum = 0;
#pragma unroll
  for (unsigned j = 0; j < kPlanes; j++) {
    const uint4 v = ld16(x + j * plane);
    const float2 pairs[4] = {bf16s_to_floats(v.x), bf16s_to_floats(v.y), bf16s_to_floats(v.z),
                             bf16s_to_floats(v.w)};
#pragma unroll
    for (int i = 0; i < 4; i++) x_sum += pairs[i].x + pairs[i].y;
#pragma unroll
    for (unsigned r = 0; r < kRows; r++) {
      products[r] = multiply(word(held.quants[r], j), pairs, products[r]);
    }
  }
#pragma unroll
  for (unsigned r = 0; r < kRows; r++) {
    sums[r] = fmaf(half_to_float(held.scales[r]), fmaf(-136.0f, x_sum, products[r]), sums[r]);
  }
}

// The caller waits for its own copies and for the block.
__device__ __forceinline__ void stage_x(unsigned char* shared, const uint16_t* x, unsigned groups) {
  const unsigned plane = plane_bytes(groups);
  for (unsigned i = threadIdx.x; i < groups * kPlanes; i += kThreads) {
    cp_async16(shared + i % kPlanes * plane + i / kPlanes * kVectorBytes, x + i * 8);
  }
  cp_commit();
}

__global__ void __launch_bounds__(kThreads)
    w4_gemv_kernel(float* __restrict__ y, W4Matrix w, const uint16_t* __restrict__ x) {
  HEADRACE_SHARED(unsigned char, shared);
  const unsigned groups = w.columns / kW4Group;
  const unsigned plane = plane_bytes(groups);
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned row = blockIdx.x * kBlockRows + threadIdx.x / kWarp * kRows;
  Weights next;
  load(next, w, row, lane);
  grid_dependency_wait();
  stage_x(shared, x, groups);
  cp_wait<0>();
  syncthreads();
  grid_dependency_trigger();

  float sums[kRows] = {};
  for (unsigned group = lane; group < groups; group += kWarp) {
    const Weights held = next;
    load(next, w, row, group + kWarp);
    add_group(sums, held, shared + group * kVectorBytes, plane);
  }
#pragma unroll
  for (unsigned r = 0; r < kRows; r++) {
#pragma unroll
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
      sums[r] += shfl_xor(kFullMask, sums[r], lanes);
    }
  }
  // Lane r writes row r.
  const float mine = lane == 0 ? sums[0] : lane == 1 ? sums[1] : lane == 2 ? sums[2] : sums[3];
  static_assert(kRows == 4);
  if (lane < kRows && row + lane < w.rows) y[row + lane] = mine;
}

}  // namespace

cudaError_t enqueue(const W4Gemv& op, cudaStream_t stream) {
  if (!vector_aligned(op.w.quants) || !vector_aligned(op.x) || op.w.columns % kW4Group != 0 ||
      op.w.columns > kW4GemvColumnsMax) {
    return cudaErrorInvalidValue;
  }
  if (op.w.rows == 0) return cudaSuccess;
  const unsigned blocks = (op.w.rows - 1) / kBlockRows + 1;
  const size_t shared_bytes = kPlanes * plane_bytes(op.w.columns / kW4Group);
  return launch_dependent("w4_gemv", stream, dim3(blocks), dim3(kThreads), shared_bytes,
                          w4_gemv_kernel, op.y, op.w, op.x);
}

}  // namespace headrace::cuda

#include "tests/simt/hooks/planted.h"

#include "kernels/cuda/dev.h"

namespace headrace::cuda {
namespace {

constexpr unsigned kTile = 32;

template <unsigned kPitch>
struct Tile {
  float rows[kTile][kPitch];
};

// One warp: a tile written by rows, read by columns.
template <unsigned kPitch>
__global__ void transpose_kernel(float* to, const float* from) {
  HEADRACE_SHARED(Tile<kPitch>, tile);
  for (unsigned row = 0; row < kTile; row++) {
    tile->rows[row][threadIdx.x] = from[row * kTile + threadIdx.x];
  }
  syncthreads();
  for (unsigned row = 0; row < kTile; row++) {
    to[row * kTile + threadIdx.x] = tile->rows[threadIdx.x][row];
  }
}

__global__ void strided_kernel(float* to, const float* from, unsigned stride) {
  to[threadIdx.x] = from[threadIdx.x * stride];
}

__global__ void scores_kernel(float* scores, const float* q, const float* k, unsigned rows,
                              unsigned dims) {
  for (unsigned key = 0; key <= threadIdx.x; key++) {
    float sum = 0;
    for (unsigned d = 0; d < dims; d++)
      sum = fmaf(q[threadIdx.x * dims + d], k[key * dims + d], sum);
    scores[threadIdx.x * rows + key] = sum / sqrtf(static_cast<float>(dims));
  }
}

__global__ void softmax_kernel(float* scores, unsigned rows) {
  float* row = scores + threadIdx.x * rows;
  float largest = row[0];
  for (unsigned key = 1; key <= threadIdx.x; key++) largest = fmaxf(largest, row[key]);
  float sum = 0;
  for (unsigned key = 0; key <= threadIdx.x; key++) sum += row[key] = expf(row[key] - largest);
  for (unsigned key = 0; key <= threadIdx.x; key++) row[key] /= sum;
}

__global__ void values_kernel(float* y, const float* scores, const float* v, unsigned rows,
                              unsigned dims) {
  for (unsigned d = 0; d < dims; d++) {
    float sum = 0;
    for (unsigned key = 0; key <= threadIdx.x; key++) {
      sum = fmaf(scores[threadIdx.x * rows + key], v[key * dims + d], sum);
    }
    y[threadIdx.x * dims + d] = sum;
  }
}

}  // namespace

cudaError_t enqueue_transpose(float* to, const float* from, bool padded, cudaStream_t stream) {
  if (padded) {
    return launch("transpose", stream, dim3(1), dim3(kTile), sizeof(Tile<kTile + 1>),
                  transpose_kernel<kTile + 1>, to, from);
  }
  return launch("transpose", stream, dim3(1), dim3(kTile), sizeof(Tile<kTile>),
                transpose_kernel<kTile>, to, from);
}

cudaError_t enqueue_strided(float* to, const float* from, unsigned stride, cudaStream_t stream) {
  return launch("strided", stream, dim3(1), dim3(kTile), 0, strided_kernel, to, from, stride);
}

cudaError_t enqueue_unfused_attention(float* y, float* scores, const float* q, const float* k,
                                      const float* v, unsigned rows, unsigned dims,
                                      cudaStream_t stream) {
  const dim3 one(1);
  cudaError_t error =
      launch("scores", stream, one, dim3(rows), 0, scores_kernel, scores, q, k, rows, dims);
  if (error == cudaSuccess) {
    error = launch("softmax", stream, one, dim3(rows), 0, softmax_kernel, scores, rows);
  }
  if (error != cudaSuccess) return error;
  return launch("values", stream, one, dim3(rows), 0, values_kernel, y, scores, v, rows, dims);
}

}  // namespace headrace::cuda

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

}  // namespace headrace::cuda

#include "kernels/cuda/dev.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/simt/order.h"

namespace headrace::cuda {
namespace {

__global__ void sum_lanes(const int* in, int* out) {
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) value += shfl_xor(kFullMask, value, lanes);
  HEADRACE_SHARED(int, sums);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) total += sums[i];
    atomic_add(out, total);
  }
}

TEST_CASE("simt: sums") {
  std::vector<int> in(1024);
  for (int i = 0; i < 1024; ++i) in[static_cast<size_t>(i)] = i;
  for (const simt::Order& order : simt::orders()) {
    CAPTURE(simt::to_string(order));
    simt::set_order(order);
    int out = 0;
    const auto fault =
        simt::run_grid(make_launch("sum", dim3(4), dim3(256), 32, sum_lanes, in.data(), &out));
    CHECK_MESSAGE(!fault, fault->what);
    CHECK(out == 1023 * 512);
  }
}

}  // namespace
}  // namespace headrace::cuda

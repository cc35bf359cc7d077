#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/planted/plants.h"

// Mistakes among the lanes of a warp.
namespace headrace::simt::planted {

using namespace headrace::cuda;

namespace {

constexpr unsigned kLanes = 32;

Outcome run_warp(const char* name, void (*kernel)(int*, bool), bool planted) {
  std::vector<int> out(kLanes, -1);
  auto fault =
      run_grid(make_launch(name, 1, kLanes, kLanes * sizeof(int), kernel, out.data(), planted));
  bool right = true;
  for (unsigned i = 0; i < kLanes; ++i) right &= out[i] == static_cast<int>(i ^ 1);
  return {fault, right};
}

__global__ void swap_shared(int* out, bool planted) {
  HEADRACE_SHARED(int, staged);
  staged[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!planted) syncwarp();
  out[threadIdx.x] = staged[threadIdx.x ^ 1];
}

Outcome missing_syncwarp(bool planted) { return run_warp("swap_shared", swap_shared, planted); }

// A shuffle brings lanes together, but orders nothing that they wrote.
__global__ void swap_behind_shuffle(int* out, bool planted) {
  HEADRACE_SHARED(int, staged);
  staged[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int zero = shfl_xor(kFullMask, 0, 1);
  if (!planted) syncwarp();
  out[threadIdx.x] = staged[threadIdx.x ^ 1] + zero;
}

Outcome shuffle_as_fence(bool planted) {
  return run_warp("swap_behind_shuffle", swap_behind_shuffle, planted);
}

__global__ void swap_shuffle(int* out, bool planted) {
  const int own = static_cast<int>(threadIdx.x);
  if (!planted || threadIdx.x < 16) out[threadIdx.x] = shfl_xor(kFullMask, own, 1);
}

Outcome divergent_shuffle(bool planted) { return run_warp("swap_shuffle", swap_shuffle, planted); }

__global__ void swap_masked(int* out, bool planted) {
  const uint32_t mask = planted ? kFullMask - 1 : kFullMask;
  out[threadIdx.x] = shfl_xor(mask, static_cast<int>(threadIdx.x), 1);
}

Outcome lane_outside_mask(bool planted) { return run_warp("swap_masked", swap_masked, planted); }

// out (16 x 8) = a (16 x 16) b (16 x 8), b given by columns; the mistake takes lanes' columns in
// the wrong order.
__global__ void multiply(const uint16_t* a, const uint16_t* b, float* out, bool planted) {
  const unsigned group = threadIdx.x / 4;
  const unsigned pair = threadIdx.x % 4 * 2;
  const unsigned column = planted ? threadIdx.x % 8 : group;
  const auto two = [](const uint16_t* p) { return p[0] | uint32_t{p[1]} << 16; };
  const uint32_t left[4] = {two(a + group * 16 + pair), two(a + (group + 8) * 16 + pair),
                            two(a + group * 16 + pair + 8), two(a + (group + 8) * 16 + pair + 8)};
  const uint32_t right[2] = {two(b + column * 16 + pair), two(b + column * 16 + pair + 8)};
  float sums[4] = {};
  mma_f16_16816(sums, left, right);
  for (unsigned i = 0; i < 4; ++i) out[(group + i / 2 * 8) * 8 + pair + i % 2] = sums[i];
}

Outcome wrong_fragment_lane(bool planted) {
  std::vector<uint16_t> a(16 * 16);
  std::vector<uint16_t> b(8 * 16);
  for (unsigned i = 0; i < a.size(); ++i) a[i] = float_to_half(static_cast<float>(i % 11));
  for (unsigned i = 0; i < b.size(); ++i) b[i] = float_to_half(static_cast<float>(i % 7) - 3);
  std::vector<float> out(16 * 8);
  auto fault = run_grid(
      make_launch("multiply", 1, kLanes, 0, multiply, a.data(), b.data(), out.data(), planted));
  bool right = true;
  for (unsigned i = 0; i < out.size(); ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      sum += static_cast<float>((i / 8 * 16 + k) % 11) *
             (static_cast<float>((i % 8 * 16 + k) % 7) - 3);
    }
    right &= out[i] == sum;
  }
  return {fault, right};
}

}  // namespace

std::span<const Plant> warp_plants() {
  using enum Sees;
  static constexpr Plant kPlants[] = {
      {"missing syncwarp", missing_syncwarp, kValues, kValues, kReport},
      {"shuffle as fence", shuffle_as_fence, kNothing, kNothing, kReport},
      {"divergent shuffle", divergent_shuffle, kFault, kFault, kFault},
      {"lane outside its mask", lane_outside_mask, kFault, kFault, kFault},
      {"wrong lane in a fragment", wrong_fragment_lane, kValues, kValues, kValues},
  };
  return kPlants;
}

}  // namespace headrace::simt::planted

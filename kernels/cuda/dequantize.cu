#include "kernels/cuda/dequantize.h"

#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/matmul_fragments.h"

// A warp a unit of weights: read as the tensor cores' operand, which has eight neighbouring columns
// of two rows in a lane, written as those.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarps = 8;

struct Work {
  const unsigned char* weights;
  size_t units;    // all together
  unsigned width;  // units of a strip
  unsigned strips;
  bool paired;
  uint16_t* y;
};

// Columns 4 s and the next, or those behind (i 2, 3), of row g or g + 8 (i 1, 3) as bf16.
template <WeightType kType>
__device__ __forceinline__ uint32_t rounded(const Group<kType>& group, unsigned s, unsigned i) {
  float2 v = bf16s_to_floats(group.a[s][0][i]);
#pragma unroll
  for (unsigned part = 1; part < Unit<kType>::kParts; part++) {
    const float2 more = bf16s_to_floats(group.a[s][part][i]);
    v = make_float2(v.x + more.x, v.y + more.y);
  }
  if constexpr (Unit<kType>::kQuantized) {
    float minimum = 0;
    if constexpr (Unit<kType>::kMinimum) minimum = group.minimum[i % 2];
    v = make_float2(fmaf(group.scale[i % 2], v.x, minimum), fmaf(group.scale[i % 2], v.y, minimum));
  }
  return floats_to_bf16s(v.x, v.y);
}

template <WeightType kType>
__global__ void __launch_bounds__(kWarps* kWarp) dequantize_kernel(Work work) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t unit = size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const unsigned char* from = work.weights + unit * Unit<kType>::kBytes;
  const bool there = unit < work.units;
  Group<kType> groups[2];
  if (there) {
    const uint4 line = load_nibbles<kType>(from, lane);
#pragma unroll
    for (unsigned h = 0; h < 2; h++) groups[h] = load_group<kType>(from, h, lane, line);
  }
  grid_dependency_wait();
  grid_dependency_trigger();
  if (!there) return;
  const size_t strip = unit / work.width;
  const size_t column = unit % work.width * 64 + lane % 4 * 8;
  const size_t below = work.paired ? size_t{work.strips} * 8 : 8;  // from row g to g + 8 of a strip
  const size_t row = strip * (work.paired ? 8 : 16) + lane / 4;
#pragma unroll
  for (unsigned i = 0; i < 2; i++) {
    uint16_t* to = work.y + (row + i * below) * (size_t{work.width} * 64) + column;
#pragma unroll
    for (unsigned h = 0; h < 2; h++) {
      st16(to + 32 * h, make_uint4(rounded(groups[h], 0, i), rounded(groups[h], 0, 2 + i),
                                   rounded(groups[h], 1, i), rounded(groups[h], 1, 2 + i)));
    }
  }
}

template <WeightType kType>
cudaError_t launch_type(const Work& work, const Context& context) {
  const size_t blocks = (work.units + kWarps - 1) / kWarps;
  if (blocks > kGridMax) return cudaErrorInvalidValue;
  return launch_dependent("dequantize", context.stream, dim3(static_cast<unsigned>(blocks)),
                          dim3(kWarps * kWarp), 0, dequantize_kernel<kType>, work);
}

}  // namespace

cudaError_t enqueue(const Dequantize& op, const Context& context) {
  const kernels::Matrix& w = op.w;
  if (w.tiling != kernels::Tiling::kFragments || w.rows < 0 || w.cols < 1 || op.first < 0 ||
      op.strips < 0 || op.first > w.tiles() - op.strips || !vector_aligned(w.data) ||
      op.y == nullptr || !vector_aligned(op.y)) {
    return cudaErrorInvalidValue;
  }
  if (op.strips == 0) return cudaSuccess;
  const auto width = static_cast<unsigned>(w.units());
  const auto strips = static_cast<unsigned>(op.strips);
  const Work work{reinterpret_cast<const unsigned char*>(w.data) +
                      static_cast<size_t>(op.first) * w.tile_bytes(),
                  size_t{strips} * width,
                  width,
                  strips,
                  w.paired,
                  op.y};
  switch (w.type) {
    case WeightType::kF32:
      return launch_type<WeightType::kF32>(work, context);
    case WeightType::kF16:
      return launch_type<WeightType::kF16>(work, context);
    case WeightType::kBf16:
      return launch_type<WeightType::kBf16>(work, context);
    case WeightType::kW8:
      return launch_type<WeightType::kW8>(work, context);
    case WeightType::kW4:
      return launch_type<WeightType::kW4>(work, context);
    case WeightType::kW4Min:
      return launch_type<WeightType::kW4Min>(work, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace headrace::cuda

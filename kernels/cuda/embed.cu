#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/row_values.h"
#include "kernels/cuda/rows.h"

// A row of the table as floats, four neighbouring values a thread, taken out of the fragments of
// the strip that holds it (matrix_fragments.h). Each product is exact, so that the floats are.

namespace headrace::cuda {
namespace {

using kernels::WeightType;

constexpr unsigned kThreads = 256;
constexpr unsigned kLineBytes = 512;
constexpr unsigned kScaleBytes = 64;

// Four weights of one row within a unit: k = 32 h + 8 t + 4 s + 0..3, `lane` is 4 g + t.
struct Place {
  const unsigned char* unit;
  unsigned lane;
  unsigned h;
  unsigned s;
  unsigned below;  // 1 for rows 8 to 15 of the strip
};

__device__ __forceinline__ uint32_t word(const Place& p, unsigned line, unsigned index) {
  const void* at = p.unit + line * kLineBytes + 16 * p.lane + 4 * index;
  return *static_cast<const uint32_t*>(at);
}
__device__ __forceinline__ float scale(const Place& p, unsigned lines, unsigned table) {
  const void* at = p.unit + lines * kLineBytes + table * kScaleBytes +
                   2 * (2 * (8 * p.h + p.lane / 4) + p.below);
  return half_to_float(*static_cast<const uint16_t*>(at));
}
__device__ __forceinline__ float2 both(float2 a, float2 b) {
  return make_float2(a.x + b.x, a.y + b.y);
}

template <WeightType kType>
__device__ __forceinline__ float4 weights(const Place& p) {
  if constexpr (kType == WeightType::kW4 || kType == WeightType::kW4Min) {
    // kFragmentShift, of elements 4 s to 4 s + 3.
    const uint32_t q = word(p, 0, 2 * p.h + p.below) >> (8 * p.s);
    const int zero = kType == WeightType::kW4 ? 8 : 0;
    const float f = scale(p, 1, 0);
    const float least = kType == WeightType::kW4Min ? scale(p, 1, 1) : 0.0f;
    const auto value = [&](uint32_t quant) {
      return fmaf(f, static_cast<float>(static_cast<int>(quant & 15) - zero), least);
    };
    return make_float4(value(q), value(q >> 16), value(q >> 4), value(q >> 20));
  } else if constexpr (kType == WeightType::kW8) {
    const uint32_t q = word(p, p.h, 2 * p.below + p.s);
    const float f = scale(p, 2, 0);
    const auto value = [&](uint32_t byte) {
      return f * static_cast<float>(static_cast<int8_t>(byte & 0xff));
    };
    return make_float4(value(q), value(q >> 8), value(q >> 16), value(q >> 24));
  } else {
    const unsigned line = 2 * p.h + p.s;
    float2 low;
    float2 high;
    if constexpr (kType == WeightType::kF16) {
      low = halves_to_floats(word(p, line, p.below));
      high = halves_to_floats(word(p, line, 2 + p.below));
    } else if constexpr (kType == WeightType::kBf16) {
      low = bf16s_to_floats(word(p, line, p.below));
      high = bf16s_to_floats(word(p, line, 2 + p.below));
    } else {
      // Three planes: each sum is exact.
      const auto sum = [&](unsigned index) {
        return both(both(bf16s_to_floats(word(p, 3 * line, index)),
                         bf16s_to_floats(word(p, 3 * line + 1, index))),
                    bf16s_to_floats(word(p, 3 * line + 2, index)));
      };
      low = sum(p.below);
      high = sum(2 + p.below);
    }
    return make_float4(low.x, low.y, high.x, high.y);
  }
}

template <WeightType kType>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const unsigned char* __restrict__ table, size_t strip_bytes, unsigned unit_bytes,
                 unsigned vocab, const int32_t* ids, unsigned dim, unsigned blocks_of_row,
                 float* y) {
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x / blocks_of_row;
  const unsigned vector = blockIdx.x % blocks_of_row * kThreads + threadIdx.x;
  if (vector >= dim / kLaneValues) return;
  const auto id = static_cast<unsigned>(ids[row]);
  float4 v = make_float4(0, 0, 0, 0);
  if (id < vocab) {
    const unsigned in_strip = id % kernels::kStripRows;
    const unsigned k = vector * kLaneValues;
    Place p;
    p.unit = table + id / kernels::kStripRows * strip_bytes +
             size_t{k / kernels::kStripGroup} * unit_bytes;
    p.lane = in_strip % 8 * 4 + k / 8 % 4;
    p.h = k / 32 % 2;
    p.s = k / 4 % 2;
    p.below = in_strip / 8;
    v = weights<kType>(p);
  }
  st16(y + row * dim + size_t{vector} * kLaneValues, bits(v));
}

template <WeightType kType>
cudaError_t launch_type(const kernels::Embed& op, unsigned lines, unsigned tables,
                        const Context& context) {
  const auto dim = static_cast<unsigned>(op.table.cols);
  const unsigned unit_bytes = lines * kLineBytes + tables * kScaleBytes;
  const unsigned units = (dim + kernels::kStripGroup - 1) / kernels::kStripGroup;
  const unsigned blocks_of_row = (dim / kLaneValues + kThreads - 1) / kThreads;
  const size_t blocks = static_cast<size_t>(op.rows) * blocks_of_row;
  if (blocks > kGridMax) return cudaErrorInvalidValue;
  return launch_dependent("embed", context.stream, dim3(static_cast<unsigned>(blocks)),
                          dim3(kThreads), 0, embed_kernel<kType>,
                          reinterpret_cast<const unsigned char*>(op.table.data),
                          size_t{units} * unit_bytes, unit_bytes,
                          static_cast<unsigned>(op.table.rows), op.ids, dim, blocks_of_row, op.y);
}

}  // namespace

cudaError_t enqueue(const kernels::Embed& op, const Context& context) {
  if (op.table.tiling != kernels::Tiling::kFragments || op.table.paired || op.table.rows < 0 ||
      !row_width(op.table.cols) || op.rows < 0 || !vector_aligned(op.table.data) ||
      !vector_aligned(op.y)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.table.cols == 0) return cudaSuccess;
  switch (op.table.type) {
    case WeightType::kF32:
      return launch_type<WeightType::kF32>(op, 12, 0, context);
    case WeightType::kF16:
      return launch_type<WeightType::kF16>(op, 4, 0, context);
    case WeightType::kBf16:
      return launch_type<WeightType::kBf16>(op, 4, 0, context);
    case WeightType::kW8:
      return launch_type<WeightType::kW8>(op, 2, 1, context);
    case WeightType::kW4:
      return launch_type<WeightType::kW4>(op, 1, 1, context);
    case WeightType::kW4Min:
      return launch_type<WeightType::kW4Min>(op, 1, 2, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace headrace::cuda

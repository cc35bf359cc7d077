#include "kernels/cuda/attention.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

// A warp has one head of one row, two neighbouring values a lane at a time: they turn together.
// All that is read and written is a head's 2 or 4 head_dim bytes in a row.

namespace headrace::cuda {
namespace {

using kernels::KvType;

constexpr int kWarp = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarp * kWarps;
constexpr int kPairs = kAppendHeadDimMax / 2 / kWarp;  // of a lane

struct Arguments {
  float* qkv;
  const kernels::StepRow* step;
  const float* rope;
  unsigned char* pages;  // block 0 at the layer
  size_t block_bytes;
  size_t head_bytes;
  int64_t units;  // rows times heads of all kinds
  int heads;
  int kv_heads;
  int head_dim;
  int rotated;
  int block_tokens;
};

// This lane's pairs of a head.
struct Values {
  float2 pair[kPairs];
};

// Calls f(pair of the head, pair of the lane) for those that exist.
template <class F>
__device__ __forceinline__ void each_pair(int dims, F f) {
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
    const int pair = static_cast<int>(threadIdx.x) % kWarp + i * kWarp;
    if (2 * pair < dims) f(pair, i);
  }
}

__device__ __forceinline__ void rotate(Values& v, const float* rope, int rotated) {
  each_pair(rotated, [&](int pair, int i) {
    const uint2 turn = ld8(rope + 2 * pair);
    const float c = bits_float(turn.x);
    const float s = bits_float(turn.y);
    const float2 x = v.pair[i];
    v.pair[i] = make_float2(fmaf(x.x, c, -(x.y * s)), fmaf(x.x, s, x.y * c));
  });
}

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Bits of the head's largest magnitude; a NaN is larger than all.
__device__ __forceinline__ uint32_t largest_of(const Values& v, int dims) {
  uint32_t largest = 0;
  each_pair(dims, [&](int, int i) {
    largest = larger(largest, float_bits(v.pair[i].x) & 0x7fffffffu);
    largest = larger(largest, float_bits(v.pair[i].y) & 0x7fffffffu);
  });
#pragma unroll
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    largest = larger(largest, shfl_xor(kFullMask, largest, lanes));
  }
  return largest;
}

// The least f16 whose `steps` are not below the largest magnitude; NaN if there is no finite one.
__device__ __forceinline__ uint16_t scale_of(uint32_t largest, float steps) {
  constexpr uint16_t kNan = 0x7e00;
  constexpr uint16_t kInfinity = 0x7c00;
  if (largest >= 0x7f800000u) return kNan;
  const float x = bits_float(largest);
  uint32_t h = float_to_half(x / steps);
  // Products of 11 and 7 bits are exact.
  if (half_to_float(static_cast<uint16_t>(h)) * steps < x) {
    h++;
  } else if (h > 0 && half_to_float(static_cast<uint16_t>(h - 1)) * steps >= x) {
    h--;
  }
  return h >= kInfinity ? kNan : static_cast<uint16_t>(h);
}

__device__ __forceinline__ uint16_t int8s(float lo, float hi) {
  const int a = static_cast<int>(rintf(lo));
  const int b = static_cast<int>(rintf(hi));
  return static_cast<uint16_t>((a & 0xff) | (b & 0xff) << 8);
}

// Writes a head's values as `to` has them, and where they have one their scale.
template <KvType kKv>
__device__ __forceinline__ void append(unsigned char* to, uint16_t* scale_to, const Values& v,
                                       int dims) {
  if constexpr (kKv == KvType::kF32) {
    each_pair(dims, [&](int pair, int i) {
      st8(to + 8 * pair, make_uint2(float_bits(v.pair[i].x), float_bits(v.pair[i].y)));
    });
  } else if constexpr (kKv == KvType::kF16 || kKv == KvType::kBf16) {
    each_pair(dims, [&](int pair, int i) {
      const float2 x = v.pair[i];
      reinterpret_cast<uint32_t*>(to)[pair] =
          kKv == KvType::kF16 ? floats_to_halves(x.x, x.y) : floats_to_bf16s(x.x, x.y);
    });
  } else {
    constexpr float kSteps = kKv == KvType::kFp8 ? 448.0f : 127.0f;
    const uint16_t h = scale_of(largest_of(v, dims), kSteps);
    const float scale = half_to_float(h);
    each_pair(dims, [&](int pair, int i) {
      const float lo = scale > 0 ? v.pair[i].x / scale : 0.0f;
      const float hi = scale > 0 ? v.pair[i].y / scale : 0.0f;
      reinterpret_cast<uint16_t*>(to)[pair] =
          kKv == KvType::kFp8 ? floats_to_e4m3s(lo, hi) : int8s(lo, hi);
    });
    if (threadIdx.x % kWarp == 0) *scale_to = h;
  }
}

template <KvType kKv>
__global__ void __launch_bounds__(kThreads) rope_append_kv_kernel(Arguments a) {
  constexpr int kBytes = kKv == KvType::kF32                           ? 4
                         : kKv == KvType::kF16 || kKv == KvType::kBf16 ? 2
                                                                       : 1;
  grid_dependency_wait();
  grid_dependency_trigger();
  const int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (unit >= a.units) return;
  const int of_row = a.heads + 2 * a.kv_heads;
  const int64_t row = unit / of_row;
  const int head = static_cast<int>(unit % of_row);
  const kernels::StepRow step = a.step[row];
  if (step.position < 0) return;
  float* from = a.qkv + unit * a.head_dim;
  Values v = {};
  each_pair(a.head_dim, [&](int pair, int i) {
    const uint2 x = ld8(from + 2 * pair);
    v.pair[i] = make_float2(bits_float(x.x), bits_float(x.y));
  });
  if (head < a.heads + a.kv_heads) {
    rotate(v, a.rope + int64_t{step.position} * a.rotated, a.rotated);
  }
  if (head < a.heads) {
    each_pair(a.rotated, [&](int pair, int i) {
      st8(from + 2 * pair, make_uint2(float_bits(v.pair[i].x), float_bits(v.pair[i].y)));
    });
    return;
  }
  const bool value = head >= a.heads + a.kv_heads;
  const int kv_head = head - a.heads - (value ? a.kv_heads : 0);
  const int slot = step.position % a.block_tokens;
  const int half = value ? a.block_tokens : 0;  // rows in front of it
  unsigned char* to =
      a.pages + static_cast<size_t>(step.blocks[step.position / a.block_tokens]) * a.block_bytes +
      static_cast<size_t>(kv_head) * a.head_bytes;
  const int row_bytes = a.head_dim * kBytes;
  auto* scales = reinterpret_cast<uint16_t*>(to + 2 * a.block_tokens * row_bytes);
  append<kKv>(to + (half + slot) * row_bytes, scales + half + slot, v, a.head_dim);
}

template <KvType kKv>
cudaError_t start(const Arguments& a, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((a.units + kWarps - 1) / kWarps);
  return launch_dependent("rope_append_kv", stream, dim3(blocks), dim3(kThreads), 0,
                          rope_append_kv_kernel<kKv>, a);
}

bool aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

}  // namespace

cudaError_t enqueue(const kernels::RopeAppendKv& op, const Context& context) {
  const kernels::KvLayout& l = op.kv.layout;
  Arguments a = {};
  a.units = int64_t{op.rows} * (op.heads + 2 * l.kv_heads);
  if (l.order != kernels::KvOrder::kRows || l.head_dim <= 0 || l.head_dim % 2 != 0 ||
      l.head_dim > kAppendHeadDimMax || op.rotated < 0 || op.rotated % 2 != 0 ||
      op.rotated > l.head_dim || l.block_tokens <= 0 || op.rows < 0 ||
      a.units / kWarps > static_cast<int64_t>(kGridMax) - 1 || !aligned(op.qkv, 8) ||
      !aligned(op.rope, 8) || !aligned(op.kv.base, 8)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0) return cudaSuccess;
  a.qkv = op.qkv;
  a.step = op.step;
  a.rope = op.rope;
  a.pages = reinterpret_cast<unsigned char*>(op.kv.head(0, op.layer, 0));
  a.block_bytes = l.block_bytes();
  a.head_bytes = l.head_bytes();
  a.heads = op.heads;
  a.kv_heads = l.kv_heads;
  a.head_dim = l.head_dim;
  a.rotated = op.rotated;
  a.block_tokens = l.block_tokens;
  switch (l.type) {
    case KvType::kF16:
      return start<KvType::kF16>(a, context.stream);
    case KvType::kF32:
      return start<KvType::kF32>(a, context.stream);
    case KvType::kBf16:
      return start<KvType::kBf16>(a, context.stream);
    case KvType::kFp8:
      return start<KvType::kFp8>(a, context.stream);
    case KvType::kInt8:
      return start<KvType::kInt8>(a, context.stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace headrace::cuda

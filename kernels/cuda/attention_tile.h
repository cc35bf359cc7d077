#pragma once

#include "kernels/cuda/attention_fragments.h"

// Device code of attention.cu: a tile's queries, and where its results go.

namespace headrace::cuda::attention {

template <kernels::KvType kKv, int kDims, int kRows>
union Memory {
  Slices<kKv, kDims> slices;
  float rows[kRows * (kDims + Type<kKv>::kRowPad)];
};

// Query `index` of a tile.
struct Query {
  int row;
  int head;  // of all heads
};
__device__ __forceinline__ Query query_of(const Arguments& a, const AttentionTile& tile,
                                          int kv_head, int index) {
  const int at = tile.head + index;
  return {tile.row + at / a.group, kv_head * a.group + at % a.group};
}
__device__ __forceinline__ int position_of(const Arguments& a, const AttentionTile& tile,
                                           int index) {
  return a.step[tile.row + (tile.head + index) / a.group].position;
}

// Queries `first` + g and `first` + g + 8 as A operands, and their positions; -1 where there is
// none.
template <kernels::KvType kKv, int kDims>
__device__ __forceinline__ void load_queries(HeldQueries<kDims>& queries, int (&position)[2],
                                             const Arguments& a, const AttentionTile& tile,
                                             int kv_head, int first) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int index = first + lane / 4 + half * 8;
    const bool there = index < tile.queries;
    const Query query = query_of(a, tile, kv_head, there ? index : 0);
    position[half] = there ? a.step[query.row].position : -1;
    const float* from =
        a.qkv + (static_cast<size_t>(query.row) * static_cast<size_t>(a.heads + 2 * a.kv_heads) +
                 static_cast<size_t>(query.head)) *
                    static_cast<size_t>(a.head_dim);
#pragma unroll
    for (int k = 0; k < kDims / 16; k++) {
      // 8-bit keys: dims 4t and on; else 2t and 2t + 8 and on.
      uint4 v = make_uint4(0, 0, 0, 0);
      if constexpr (Type<kKv>::kScaled) {
        if (there && k < a.steps) v = ld16(from + k * 16 + 4 * t);
      } else {
        const int at = k * 16 + 2 * t;
        if (there && at < a.head_dim) {
          const uint2 low = ld8(from + at);
          v.x = low.x;
          v.y = low.y;
        }
        if (there && at + 8 < a.head_dim) {
          const uint2 high = ld8(from + at + 8);
          v.z = high.x;
          v.w = high.y;
        }
      }
      queries.q[k][half] =
          pack_query<kKv>(bits_float(v.x) * a.q_scale, bits_float(v.y) * a.q_scale);
      queries.q[k][half + 2] =
          pack_query<kKv>(bits_float(v.z) * a.q_scale, bits_float(v.w) * a.q_scale);
    }
  }
}

// The tile's rows of results, from shared memory to where they belong: four values a lane, so that
// eight lanes have the 32 that share a sum.
template <int kDims, int kRows, int kPitch>
__device__ __forceinline__ void deliver(const Arguments& a, const AttentionTile& tile, int kv_head,
                                        const float* rows) {
  constexpr int kVectors = kDims / 4;
#pragma unroll 1
  for (int base = 0; base < kRows * kVectors; base += kThreads) {
    const int index = (base + static_cast<int>(threadIdx.x)) / kVectors;
    const int dim = (base + static_cast<int>(threadIdx.x)) % kVectors * 4;
    const bool valid = index < tile.queries && dim < a.head_dim;
    const uint4 v = ld16(rows + (valid ? index * kPitch + dim : 0));
    const Query query = query_of(a, tile, kv_head, valid ? index : 0);
    const size_t column = static_cast<size_t>(query.head) * static_cast<size_t>(a.head_dim) +
                          static_cast<size_t>(dim);
    const auto row = static_cast<size_t>(query.row);
    if (valid && a.f32 != nullptr) {
      const size_t width = static_cast<size_t>(a.heads) * static_cast<size_t>(a.head_dim);
      st16(a.f32 + row * width + column, v);
    }
    if (a.bf16 == nullptr) continue;
    const uint2 two = make_uint2(floats_to_bf16s(bits_float(v.x), bits_float(v.y)),
                                 floats_to_bf16s(bits_float(v.z), bits_float(v.w)));
    const size_t at = row * static_cast<size_t>(a.pitch) + column;
    if (valid) st8(a.bf16 + at, two);
    const float2 lower = bf16s_to_floats(two.x);
    const float2 upper = bf16s_to_floats(two.y);
    float sum = (lower.x + lower.y) + (upper.x + upper.y);
    sum += shfl_xor(kFullMask, sum, 1);
    sum += shfl_xor(kFullMask, sum, 2);
    sum += shfl_xor(kFullMask, sum, 4);
    if (valid && a.sums != nullptr && dim % 32 == 0) a.sums[at / 32] = sum;
  }
}

// Rows of no token.
template <int kDims, int kRows, int kPitch>
__device__ __forceinline__ void deliver_zeros(const Arguments& a, const AttentionTile& tile,
                                              int kv_head, float* rows) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPitch; i += kThreads) rows[i] = 0;
  syncthreads();
  deliver<kDims, kRows, kPitch>(a, tile, kv_head, rows);
}

}  // namespace headrace::cuda::attention

#pragma once

#include "kernels/cuda/attention_tile.h"

// Device code of attention.cu: a slice that a block's four warps share, each with 32 of the keys
// and a part of the dims, and results of slices that different blocks have made.

namespace headrace::cuda::attention {

template <kernels::KvType kKv, int kDims>
struct TileShared {
  Memory<kKv, kDims, kAttentionTileQueries> memory;
  uint4 weights[kKeys / 16][kWarp];  // A operands
  uint2 sums[kWarps][kWarp];         // of both rows of a lane
  float maxima[kWarps][kAttentionTileQueries];
  float scales[2][Type<kKv>::kScaled ? kKeys : 1];
  uint32_t arrived;
};

// Units of 16 dims that one warp sums.
template <int kDims>
constexpr int kOwnUnits = kDims / 16 > kWarps ? kDims / 16 / kWarps : 1;

// Values of a warp's own dims.
template <int kDims>
struct OwnDims {
  float o[kOwnUnits<kDims>][2][4];
};

// Largest scores of a slice's rows over all warps, from what each has written.
__device__ __forceinline__ void maxima_of_all(
    float (&m)[2], const float (&maxima)[kWarps][kAttentionTileQueries]) {
  const int row = static_cast<int>(threadIdx.x) % kWarp / 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    m[r] = maxima[0][row + 8 * r];
#pragma unroll
    for (int warp = 1; warp < kWarps; warp++) m[r] = fmaxf(m[r], maxima[warp][row + 8 * r]);
  }
}

// Weights of this warp's 32 keys, for all.
template <kernels::KvType kKv, int kDims>
__device__ __forceinline__ void share_weights(TileShared<kKv, kDims>& shared, float (&s)[4][4],
                                              const float (&m)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float sum[2];
  weigh<0>(sum, s, m);
  st8(&shared.sums[warp][lane], make_uint2(float_bits(sum[0]), float_bits(sum[1])));
#pragma unroll
  for (int k = 0; k < 2; k++) {
    uint32_t p[4];
    pack_weights<kKv>(p, s[2 * k], s[2 * k + 1],
                      shared.scales[1] + (Type<kKv>::kScaled ? warp * 32 + k * 16 : 0));
    st16(&shared.weights[warp * 2 + k][lane], make_uint4(p[0], p[1], p[2], p[3]));
  }
}

// All warps' weights of a slice, and the rows' sums.
template <kernels::KvType kKv, int kDims>
__device__ __forceinline__ void take_weights(uint32_t (&p)[kKeys / 16][4], float (&l)[2],
                                             const TileShared<kKv, kDims>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float parts[2][kWarps];
#pragma unroll
  for (int warp = 0; warp < kWarps; warp++) {
    const uint2 both = ld8(&shared.sums[warp][lane]);
    parts[0][warp] = bits_float(both.x);
    parts[1][warp] = bits_float(both.y);
  }
  l[0] = whole_sum(parts[0]);
  l[1] = whole_sum(parts[1]);
#pragma unroll
  for (int k = 0; k < kKeys / 16; k++) {
    const uint4 v = ld16(&shared.weights[k][lane]);
    p[k][0] = v.x;
    p[k][1] = v.y;
    p[k][2] = v.z;
    p[k][3] = v.w;
  }
}

// Where a split tile's rows of a slice are.
__device__ __forceinline__ float* partial_of(const Arguments& a, const AttentionTile& tile,
                                             int kv_head, int slice, int row) {
  const int at = (kv_head * tile.slices + slice) * tile.queries + row;
  return a.partials + (static_cast<size_t>(tile.partials) + static_cast<size_t>(at)) *
                          static_cast<size_t>(a.head_dim + kAttentionPartialExtra);
}

template <kernels::KvType kKv, int kDims>
__device__ __forceinline__ void store_partial(const Arguments& a, const AttentionTile& tile,
                                              int kv_head, int slice, const OwnDims<kDims>& own,
                                              const float (&m)[2], const float (&l)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = lane / 4 + 8 * r;
    if (row >= tile.queries) continue;
    float* to = partial_of(a, tile, kv_head, slice, row);
#pragma unroll
    for (int u = 0; u < kOwnUnits<kDims>; u++) {
      const int unit = warp * kOwnUnits<kDims> + u;
      if constexpr (Type<kKv>::kScaled) {
        if (unit < a.steps) store_unit<kKv>(to + unit * 16, own.o[u], r);
      } else {
        // The last unit may be half a one.
        const int t = lane % 4;
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const int dim = unit * 16 + n * 8;
          if (dim < a.head_dim) {
            st8(to + dim + 2 * t,
                make_uint2(float_bits(own.o[u][n][2 * r]), float_bits(own.o[u][n][2 * r + 1])));
          }
        }
      }
    }
    if (warp == 0 && lane % 4 == 0) {
      st8(to + a.head_dim, make_uint2(float_bits(m[r]), float_bits(l[r])));
    }
  }
}

// Merges what all blocks of a split tile have written: four dims of a row a thread.
template <int kDims, int kPitch>
__device__ __forceinline__ void merge_partials(float* rows, const Arguments& a,
                                               const AttentionTile& tile, int kv_head) {
  const int vectors = a.head_dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < tile.queries * vectors; i += kThreads) {
    const int row = i / vectors;
    const int dim = i % vectors * 4;
    Running running;
    float o[4] = {0, 0, 0, 0};
#pragma unroll 4
    for (int slice = 0; slice < tile.slices; slice++) {
      const float* from = partial_of(a, tile, kv_head, slice, row);
      const uint4 v = ld16(from + dim);
      const uint2 ml = ld8(from + a.head_dim);
      float old, fresh;
      merge(running, bits_float(ml.x), bits_float(ml.y), old, fresh);
      o[0] = merged(o[0], bits_float(v.x), old, fresh);
      o[1] = merged(o[1], bits_float(v.y), old, fresh);
      o[2] = merged(o[2], bits_float(v.z), old, fresh);
      o[3] = merged(o[3], bits_float(v.w), old, fresh);
    }
    const float inverse = 1.0f / running.l;
    st16(rows + row * kPitch + dim,
         make_uint4(float_bits(finished(o[0], inverse)), float_bits(finished(o[1], inverse)),
                    float_bits(finished(o[2], inverse)), float_bits(finished(o[3], inverse))));
  }
}

// Whether this block is the last of a split tile's; the counter is then as before.
__device__ __forceinline__ bool last_to_arrive(const Arguments& a, const AttentionTile& tile,
                                               int kv_head, uint32_t* arrived) {
  thread_fence();
  syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* counter = a.counters + tile.counter + kv_head;
    const auto slices = static_cast<uint32_t>(tile.slices);
    const uint32_t blocks = gridDim.z < slices ? gridDim.z : slices;
    *arrived = atomic_add(counter, 1u) + 1 == blocks ? 1 : 0;
    if (*arrived != 0) *counter = 0;
  }
  syncthreads();
  thread_fence();
  return *arrived != 0;
}

// Results of the warp's own dims to shared memory.
template <kernels::KvType kKv, int kDims>
__device__ __forceinline__ void store_own(float* rows, const OwnDims<kDims>& own,
                                          const Running (&row)[2], int steps) {
  constexpr int kPitch = kDims + Type<kKv>::kRowPad;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const float inverse = 1.0f / row[r].l;
#pragma unroll
    for (int u = 0; u < kOwnUnits<kDims>; u++) {
      const int unit = warp * kOwnUnits<kDims> + u;
      if (unit >= steps) continue;
      float o[2][4];
#pragma unroll
      for (int e = 0; e < 8; e++) o[e / 4][e % 4] = finished(own.o[u][e / 4][e % 4], inverse);
      store_unit<kKv>(rows + (lane / 4 + 8 * r) * kPitch + unit * 16, o, r);
    }
  }
}

// One slice of a tile, whose keys and values are on their way; those of slice `next` are sent for,
// if there is one. Values of the warp's own dims, largest scores and sums.
template <kernels::KvType kKv, int kDims>
__device__ __forceinline__ void tile_slice(OwnDims<kDims>& own, float (&m)[2], float (&l)[2],
                                           TileShared<kKv, kDims>& shared,
                                           Stager<kKv, kDims>& stager, const Arguments& a,
                                           const HeldQueries<kDims>& q, const int (&position)[2],
                                           int slice, int next, bool more) {
  Slices<kKv, kDims>& slices = shared.memory.slices;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  cp_wait<1>();
  syncthreads();
  if (more) stager.find_pages(next);
  float s[4][4];
  scores<kKv, kDims>(s, q, slices.keys, warp * 32, a.steps);
  mask<kKv>(s, shared.scales[0] + (Type<kKv>::kScaled ? warp * 32 : 0), slice * kKeys + warp * 32,
            position);
  maxima(m, s);
  if (lane % 4 == 0) {
    shared.maxima[warp][lane / 4] = m[0];
    shared.maxima[warp][lane / 4 + 8] = m[1];
  }
  syncthreads();
  if (more) stager.copy(slices.keys, next, false);
  cp_commit();
  if (more) stager.fetch_scales(next);
  maxima_of_all(m, shared.maxima);
  share_weights(shared, s, m);
  cp_wait<1>();
  syncthreads();
  uint32_t p[kKeys / 16][4];
  take_weights(p, l, shared);
  if (warp * kOwnUnits<kDims> < a.steps) {
    weighted<kKv, kDims>(own.o, p, slices.values, warp * kOwnUnits<kDims>);
  }
  syncthreads();
  if (more) stager.copy(slices.values, next, true);
  cp_commit();
  if (more) stager.keep_scales(shared.scales[0], shared.scales[1]);
}

}  // namespace headrace::cuda::attention

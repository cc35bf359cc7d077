#include "kernels/cuda/attention.h"

#include "kernels/cuda/attention_split.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/row_values.h"

// Attention over pages, after FlashAttention-2 (Dao 2023) with fixed slices. A slice of 128 keys at
// an absolute place gives a query its own largest score, sum and values; slices are merged in
// order. Both kernels do that with the same instructions in the same order for a row, so that a
// row's bits do not tell which of them ran:
//
// chunk: a block's four warps have 16 queries each and share keys and values; a warp walks all 128
// keys of a slice alone.
//
// tile: a block has 16 queries. Each warp scores 32 of a slice's keys, all exchange their weights,
// and each sums a part of the dims. A long sequence may be split: then each slice's result goes to
// memory, and the block that comes last merges them.
//
// While keys are multiplied, values are on their way, and the next keys while these are.

namespace headrace::cuda {
namespace {

using namespace attention;
using kernels::KvType;

template <KvType kKv, int kDims>
struct ChunkShared {
  Memory<kKv, kDims, kAttentionChunkQueries> memory;
  uint4 queries[kWarps][kDims / 16][kWarp];
  float scales[2][Type<kKv>::kScaled ? kKeys : 1];  // of keys, of values
};

// A warp's 16 queries and their results so far.
template <KvType kKv, int kDims>
struct WarpTile {
  int position[2];
  Running row[2];
  float o[kDims / 16][2][4];
};

// Weights of a slice's keys and the running results made smaller by them.
template <KvType kKv, int kDims>
__device__ __forceinline__ void weigh_slice(uint32_t (&p)[kKeys / 16][4], float (&b)[2],
                                            WarpTile<kKv, kDims>& w, float (&s)[kKeys / 8][4],
                                            const float* value_scales) {
  float m[2];
  maxima(m, s);
  float parts[kWarps][2];
  weigh<0>(parts[0], s, m);
  weigh<4>(parts[1], s, m);
  weigh<8>(parts[2], s, m);
  weigh<12>(parts[3], s, m);
  float a[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const float lane_parts[kWarps] = {parts[0][r], parts[1][r], parts[2][r], parts[3][r]};
    merge(w.row[r], m[r], whole_sum(lane_parts), a[r], b[r]);
  }
#pragma unroll
  for (int k = 0; k < kKeys / 16; k++) {
    pack_weights<kKv>(p[k], s[2 * k], s[2 * k + 1], value_scales + k * 16);
  }
#pragma unroll
  for (int u = 0; u < kDims / 16; u++) {
#pragma unroll
    for (int e = 0; e < 8; e++) w.o[u][e / 4][e % 4] *= a[e % 4 / 2];
  }
}

template <KvType kKv, int kDims>
__device__ __forceinline__ void add_values(WarpTile<kKv, kDims>& w,
                                           const uint32_t (&p)[kKeys / 16][4], const float (&b)[2],
                                           const unsigned char* values, int steps) {
#pragma unroll
  for (int u = 0; u < kDims / 16; u += 2) {
    if (u >= steps) continue;
    float o[2][2][4];
    weighted<kKv, kDims>(o, p, values, u);
#pragma unroll
    for (int e = 0; e < 16; e++) {
      float& sum = w.o[u + e / 8][e / 4 % 2][e % 4];
      sum = fmaf(o[e / 8][e / 4 % 2][e % 4], b[e % 4 / 2], sum);
    }
  }
}

template <KvType kKv, int kDims>
__device__ __forceinline__ void store_rows(float* rows, const WarpTile<kKv, kDims>& w) {
  constexpr int kPitch = kDims + Type<kKv>::kRowPad;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const float inverse = 1.0f / w.row[r].l;
#pragma unroll
    for (int u = 0; u < kDims / 16; u++) {
      float o[2][4];
#pragma unroll
      for (int e = 0; e < 8; e++) o[e / 4][e % 4] = finished(w.o[u][e / 4][e % 4], inverse);
      store_unit<kKv>(rows + (lane / 4 + 8 * r) * kPitch + u * 16, o, r);
    }
  }
}

// A warp's queries to its own part of shared memory: a lane reads back what it has written.
template <KvType kKv, int kDims>
__device__ __forceinline__ void share_queries(uint4 (&to)[kDims / 16][kWarp], int (&position)[2],
                                              const Arguments& a, const AttentionTile& tile,
                                              int kv_head, int first) {
  HeldQueries<kDims> held;
  load_queries<kKv, kDims>(held, position, a, tile, kv_head, first);
#pragma unroll
  for (int k = 0; k < kDims / 16; k++) {
    st16(&to[k][threadIdx.x % kWarp],
         make_uint4(held.q[k][0], held.q[k][1], held.q[k][2], held.q[k][3]));
  }
}

// Slices that a warp's queries need; 0 if it has none.
__device__ __forceinline__ int slices_of(const Arguments& a, const AttentionTile& tile, int first) {
  const int all = first + kAttentionTileQueries;
  const int end = all < tile.queries ? all : tile.queries;
  return first < end ? position_of(a, tile, end - 1) / kKeys + 1 : 0;
}

template <KvType kKv, int kDims>
__global__ void __launch_bounds__(kThreads, 2) attention_chunk_kernel(Arguments a) {
  using Shared = ChunkShared<kKv, kDims>;
  constexpr int kPitch = kDims + Type<kKv>::kRowPad;
  HEADRACE_SHARED(Shared, shared);
  grid_dependency_wait();
  const AttentionTile tile = a.tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  if (tile.queries == 0) return;
  if (tile.slices == 0) {
    deliver_zeros<kDims, kAttentionChunkQueries, kPitch>(a, tile, kv_head, shared->memory.rows);
    return;
  }
  Slices<kKv, kDims>& slices = shared->memory.slices;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Stager<kKv, kDims> stager(a, a.step[tile.row].blocks, kv_head,
                            position_of(a, tile, tile.queries - 1));
  stager.find_pages(0);
  stager.copy(slices.keys, 0, false);
  cp_commit();
  stager.copy(slices.values, 0, true);
  cp_commit();
  stager.fetch_scales(0);
  stager.keep_scales(shared->scales[0], shared->scales[1]);
  WarpTile<kKv, kDims> w = {};
  const int first = warp * kAttentionTileQueries;
  share_queries<kKv, kDims>(shared->queries[warp], w.position, a, tile, kv_head, first);
  const int mine = slices_of(a, tile, first);
  for (int slice = 0; slice < tile.slices; slice++) {
    const bool more = slice + 1 < tile.slices;
    cp_wait<1>();
    syncthreads();
    float s[kKeys / 8][4];
    if (more) stager.find_pages(slice + 1);
    if (slice < mine) {
      scores<kKv, kDims>(s, SharedQueries{shared->queries[warp]}, slices.keys, 0, a.steps);
      mask<kKv>(s, shared->scales[0], slice * kKeys, w.position);
    }
    syncthreads();
    if (more) stager.copy(slices.keys, slice + 1, false);
    cp_commit();
    if (more) stager.fetch_scales(slice + 1);
    uint32_t p[kKeys / 16][4];
    float b[2];
    if (slice < mine) weigh_slice<kKv, kDims>(p, b, w, s, shared->scales[1]);
    cp_wait<1>();
    syncthreads();
    if (slice < mine) add_values<kKv, kDims>(w, p, b, slices.values, a.steps);
    syncthreads();
    if (more) stager.copy(slices.values, slice + 1, true);
    cp_commit();
    if (more) stager.keep_scales(shared->scales[0], shared->scales[1]);
  }
  cp_wait<0>();
  grid_dependency_trigger();
  syncthreads();
  store_rows<kKv, kDims>(shared->memory.rows + first * kPitch, w);
  syncthreads();
  deliver<kDims, kAttentionChunkQueries, kPitch>(a, tile, kv_head, shared->memory.rows);
}

template <KvType kKv, int kDims>
__global__ void __launch_bounds__(kThreads, 4) attention_tile_kernel(Arguments a) {
  using Shared = TileShared<kKv, kDims>;
  constexpr int kPitch = kDims + Type<kKv>::kRowPad;
  HEADRACE_SHARED(Shared, shared);
  grid_dependency_wait();
  const AttentionTile tile = a.tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const bool split = tile.partials >= 0;
  const int begin = static_cast<int>(blockIdx.z);
  if (tile.queries == 0 || begin >= (split ? tile.slices : 1)) return;
  float* rows = shared->memory.rows;
  if (tile.slices == 0) {
    deliver_zeros<kDims, kAttentionTileQueries, kPitch>(a, tile, kv_head, rows);
    return;
  }
  Stager<kKv, kDims> stager(a, a.step[tile.row].blocks, kv_head,
                            position_of(a, tile, tile.queries - 1));
  stager.find_pages(begin);
  stager.copy(shared->memory.slices.keys, begin, false);
  cp_commit();
  stager.copy(shared->memory.slices.values, begin, true);
  cp_commit();
  stager.fetch_scales(begin);
  stager.keep_scales(shared->scales[0], shared->scales[1]);
  HeldQueries<kDims> q;
  int position[2];
  load_queries<kKv, kDims>(q, position, a, tile, kv_head, 0);
  Running row[2];
  OwnDims<kDims> sum = {};
  const int stride = split ? static_cast<int>(gridDim.z) : 1;
  for (int slice = begin; slice < tile.slices; slice += stride) {
    OwnDims<kDims> own = {};
    float m[2];
    float l[2];
    const int next = slice + stride;
    tile_slice<kKv, kDims>(own, m, l, *shared, stager, a, q, position, slice, next,
                           next < tile.slices);
    if (split) {
      store_partial<kKv, kDims>(a, tile, kv_head, slice, own, m, l);
      continue;
    }
    float x[2];
    float b[2];
    merge(row[0], m[0], l[0], x[0], b[0]);
    merge(row[1], m[1], l[1], x[1], b[1]);
#pragma unroll
    for (int u = 0; u < kOwnUnits<kDims>; u++) {
#pragma unroll
      for (int e = 0; e < 8; e++) {
        float& o = sum.o[u][e / 4][e % 4];
        o = merged(o, own.o[u][e / 4][e % 4], x[e % 4 / 2], b[e % 4 / 2]);
      }
    }
  }
  cp_wait<0>();
  grid_dependency_trigger();
  if (split) {
    if (!last_to_arrive(a, tile, kv_head, &shared->arrived)) return;
    merge_partials<kDims, kPitch>(rows, a, tile, kv_head);
  } else {
    syncthreads();
    store_own<kKv, kDims>(rows, sum, row, a.steps);
  }
  syncthreads();
  deliver<kDims, kAttentionTileQueries, kPitch>(a, tile, kv_head, rows);
}

// Sums of each 32 and zeros behind the width, for rows whose heads are no whole number of 32 wide.
__global__ void __launch_bounds__(kThreads)
    attention_sums_kernel(uint16_t* bf16, float* sums, size_t vectors, int width, int pitch) {
  grid_dependency_wait();
  const size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool valid = i < vectors;
  const bool inside = static_cast<int>(i * 8 % static_cast<size_t>(pitch)) < width;
  uint4 v = make_uint4(0, 0, 0, 0);
  if (valid && inside) v = ld16(bf16 + i * 8);
  if (valid && !inside) st16(bf16 + i * 8, v);
  const float2 a = bf16s_to_floats(v.x);
  const float2 b = bf16s_to_floats(v.y);
  const float2 c = bf16s_to_floats(v.z);
  const float2 d = bf16s_to_floats(v.w);
  float sum = ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
  sum += shfl_xor(kFullMask, sum, 1);
  sum += shfl_xor(kFullMask, sum, 2);
  if (valid && i % 4 == 0) sums[i / 4] = sum;
}

template <KvType kKv, int kDims>
cudaError_t start(Arguments a, const AttentionWork& work, cudaStream_t stream) {
  const auto kv_heads = static_cast<unsigned>(a.kv_heads);
  if (work.chunk_count > 0) {
    a.tiles = work.chunks;
    const cudaError_t error = launch_dependent(
        "attention_chunk", stream, dim3(static_cast<unsigned>(work.chunk_count), kv_heads),
        dim3(kThreads), sizeof(ChunkShared<kKv, kDims>), attention_chunk_kernel<kKv, kDims>, a);
    if (error != cudaSuccess) return error;
  }
  if (work.tile_count == 0) return cudaSuccess;
  a.tiles = work.tiles;
  return launch_dependent(
      "attention_tile", stream,
      dim3(static_cast<unsigned>(work.tile_count), kv_heads, static_cast<unsigned>(work.spread)),
      dim3(kThreads), sizeof(TileShared<kKv, kDims>), attention_tile_kernel<kKv, kDims>, a);
}

template <KvType kKv>
cudaError_t start_of_type(const Arguments& a, const AttentionWork& work, cudaStream_t stream) {
  if (a.head_dim <= 32) return start<kKv, 32>(a, work, stream);
  if (a.head_dim <= 64) return start<kKv, 64>(a, work, stream);
  static_assert(kAttentionHeadDimMax == 128);
  return start<kKv, 128>(a, work, stream);
}

cudaError_t start_any(KvType type, const Arguments& a, const AttentionWork& work,
                      cudaStream_t stream) {
  switch (type) {
    case KvType::kF16:
      return start_of_type<KvType::kF16>(a, work, stream);
    case KvType::kBf16:
      return start_of_type<KvType::kBf16>(a, work, stream);
    case KvType::kFp8:
      return start_of_type<KvType::kFp8>(a, work, stream);
    case KvType::kInt8:
      return start_of_type<KvType::kInt8>(a, work, stream);
    case KvType::kF32:
      break;
  }
  return cudaErrorInvalidValue;
}

bool supported(const kernels::Attention& op, const AttentionWork& work) {
  constexpr int kGridSideMax = 65535;  // blocks along y and z
  const kernels::KvLayout& l = op.kv.layout;
  const int dims = kernels::scaled(l.type) ? 16 : 8;
  return l.order == kernels::KvOrder::kRows &&
         (l.block_tokens == 16 || l.block_tokens == 32 || l.block_tokens == 64) && l.head_dim > 0 &&
         l.head_dim % dims == 0 && l.head_dim <= kAttentionHeadDimMax && l.kv_heads > 0 &&
         l.kv_heads <= kGridSideMax && op.heads > 0 && op.heads % l.kv_heads == 0 && op.rows >= 0 &&
         vector_aligned(op.qkv) && vector_aligned(op.kv.base) && deliverable(op.y) &&
         work.chunk_count >= 0 && work.tile_count >= 0 && work.spread >= 1 &&
         work.spread <= kAttentionSpreadMax;
}

Arguments arguments(const kernels::Attention& op, const AttentionWork& work,
                    const Context& context) {
  const kernels::KvLayout& l = op.kv.layout;
  Arguments a = {};
  a.qkv = op.qkv;
  a.step = op.step;
  a.pages = reinterpret_cast<const unsigned char*>(op.kv.head(0, op.layer, 0));
  a.block_bytes = l.block_bytes();
  a.head_bytes = l.head_bytes();
  a.partials = static_cast<float*>(context.workspace);
  a.counters = work.counters;
  a.f32 = op.y.f32;
  a.bf16 = op.y.bf16;
  a.sums = op.y.sums;
  a.pitch = kernels::bf16_pitch(int64_t{op.heads} * l.head_dim);
  a.heads = op.heads;
  a.group = op.heads / l.kv_heads;
  a.kv_heads = l.kv_heads;
  a.head_dim = l.head_dim;
  a.steps = (l.head_dim + 15) / 16;
  a.page_shift = l.block_tokens == 16 ? 4 : l.block_tokens == 32 ? 5 : 6;
  constexpr double kLog2E = 1.4426950408889634;
  a.q_scale = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(l.head_dim)));
  return a;
}

}  // namespace

cudaError_t enqueue(const kernels::Attention& op, const AttentionWork& work,
                    const Context& context) {
  if (!supported(op, work)) return cudaErrorInvalidValue;
  if (op.rows == 0) return cudaSuccess;
  Arguments a = arguments(op, work, context);
  const int width = op.heads * a.head_dim;
  const bool sums_behind = a.bf16 != nullptr && (a.head_dim % 32 != 0 || a.pitch != width);
  if (sums_behind) a.sums = nullptr;
  const cudaError_t error = start_any(op.kv.layout.type, a, work, context.stream);
  if (error != cudaSuccess || !sums_behind) return error;
  const size_t vectors = static_cast<size_t>(op.rows) * static_cast<size_t>(a.pitch) / 8;
  const auto blocks = static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
  return launch_dependent("attention_sums", context.stream, dim3(blocks), dim3(kThreads), 0,
                          attention_sums_kernel, op.y.bf16, op.y.sums, vectors, width,
                          static_cast<int>(a.pitch));
}

}  // namespace headrace::cuda

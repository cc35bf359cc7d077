#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dev.h"

// Device code of attention.cu: what a launch is told, and how keys and values of a slice come into
// shared memory.

namespace headrace::cuda::attention {

constexpr int kWarp = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarp * kWarps;
constexpr int kKeys = kCudaSlice;
constexpr int kVector = 16;  // bytes
static_assert(kKeys == kThreads, "a thread fetches the scales of one key");
static_assert(kKeys == 32 * kWarps, "a warp has 32 keys of a shared slice");

// A KV type as kernels see it. kRowPad: floats between rows of results in shared memory, so that
// neither type's way of writing them meets a bank twice.
template <kernels::KvType kKv>
struct Type {
  static constexpr bool kScaled = kKv == kernels::KvType::kFp8 || kKv == kernels::KvType::kInt8;
  static constexpr bool kHalf = kKv == kernels::KvType::kF16;
  static constexpr bool kBf16 = kKv == kernels::KvType::kBf16;
  static constexpr bool kFp8 = kKv == kernels::KvType::kFp8;
  static constexpr int kBytes = kScaled ? 1 : 2;
  static constexpr int kRowPad = kScaled ? 16 : 8;
};

struct Arguments {
  const float* qkv;
  const kernels::StepRow* step;
  const AttentionTile* tiles;
  const unsigned char* pages;  // block 0 at the layer
  size_t block_bytes;
  size_t head_bytes;
  float* partials;
  uint32_t* counters;
  float* f32;
  uint16_t* bf16;
  float* sums;  // null: a launch behind this one makes them
  int64_t pitch;
  int heads;
  int group;  // heads of a KV head
  int kv_heads;
  int head_dim;
  int steps;  // of 16 dims
  int page_shift;
  float q_scale;  // log2(e) / sqrt(head_dim)
};

// Where vector `chunk` of row `row` lies among rows of kRowBytes: permuted within the row, so that
// eight neighbouring rows have the same vector in eight different groups of four banks.
template <int kRowBytes>
__device__ __forceinline__ int place(int row, int chunk) {
  constexpr int kChunks = kRowBytes / kVector;
  constexpr int kRowsOfBanks = kChunks >= 8 ? 1 : 8 / kChunks;
  constexpr int kMask = kChunks >= 8 ? 7 : kChunks - 1;
  return row * kRowBytes + (chunk ^ ((row / kRowsOfBanks) & kMask)) * kVector;
}

template <kernels::KvType kKv, int kDims>
struct Slices {
  static constexpr int kRowBytes = kDims * Type<kKv>::kBytes;
  unsigned char keys[kKeys * kRowBytes];
  unsigned char values[kKeys * kRowBytes];
};

// Brings slices of one sequence and KV head into shared memory, each thread its share. Keys and
// values of a slice are one group of copies each.
template <kernels::KvType kKv, int kDims>
struct Stager {
  static constexpr int kRowBytes = Slices<kKv, kDims>::kRowBytes;
  static constexpr int kChunks = kRowBytes / kVector;
  static constexpr int kRows = kThreads / kChunks;  // rows that all threads copy at a time

  const uint32_t* table;
  const unsigned char* pages;  // block 0 at the layer and head
  size_t block_bytes;
  int page_shift;
  int row_bytes;
  int chunks;       // of a row that are copied or zeroed
  int last;         // the largest position that is read
  uint32_t page;    // lane's block of the slice: lane l has its l-th one
  uint32_t scales;  // f16 of this thread's key and value

  __device__ __forceinline__ Stager(const Arguments& a, const uint32_t* blocks, int kv_head,
                                    int last_position)
      : table(blocks),
        pages(a.pages + static_cast<size_t>(kv_head) * a.head_bytes),
        block_bytes(a.block_bytes),
        page_shift(a.page_shift),
        row_bytes(a.head_dim * Type<kKv>::kBytes),
        chunks(a.steps * Type<kKv>::kBytes),
        last(last_position),
        page(0),
        scales(0) {}

  __device__ __forceinline__ void find_pages(int slice) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int of_slice = kKeys >> page_shift;
    const int at = slice * of_slice + lane;
    page = lane < of_slice && at <= last >> page_shift ? table[at] : 0;
  }

  __device__ __forceinline__ const unsigned char* head_of(int key) const {
    const uint32_t block = shfl_idx(kFullMask, page, key >> page_shift);
    return pages + static_cast<size_t>(block) * block_bytes;
  }

  __device__ __forceinline__ void copy(unsigned char* to, int slice, bool values) const {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first = static_cast<int>(threadIdx.x) / kChunks;
    const int page_mask = (1 << page_shift) - 1;
    const int offset = (values ? row_bytes << page_shift : 0) + chunk * kVector;
// Not unrolled: a place for each key would be held in registers all along.
#pragma unroll 1
    for (int i = 0; i < kKeys / kRows; i++) {
      const int key = first + i * kRows;
      const unsigned char* head = head_of(key);
      const bool valid = slice * kKeys + key <= last && chunk * kVector < row_bytes;
      const unsigned char* from = head + offset + (key & page_mask) * row_bytes;
      if (chunk < chunks) {
        cp_async16(to + place<kRowBytes>(key, chunk), valid ? from : pages, valid);
      }
    }
  }

  // This thread's key's and value's scales, for `keep_scales`.
  __device__ __forceinline__ void fetch_scales(int slice) {
    if constexpr (Type<kKv>::kScaled) {
      const int key = static_cast<int>(threadIdx.x);
      const int tokens = 1 << page_shift;
      const unsigned char* head = head_of(key) + 2 * (row_bytes << page_shift);
      const auto* of_keys = reinterpret_cast<const uint16_t*>(head) + (key & (tokens - 1));
      scales = 0;
      if (slice * kKeys + key <= last) {
        scales = of_keys[0] | static_cast<uint32_t>(of_keys[tokens]) << 16;
      }
    }
  }
  __device__ __forceinline__ void keep_scales(float* of_keys, float* of_values) const {
    if constexpr (Type<kKv>::kScaled) {
      const float2 both = halves_to_floats(scales);
      of_keys[threadIdx.x] = both.x;
      of_values[threadIdx.x] = both.y;
    }
  }
};

}  // namespace headrace::cuda::attention

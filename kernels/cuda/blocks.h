#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cost.h"
#include "kernels/cuda/context.h"

// Operations on whole blocks of a KV pool (kernels/kv.h), whatever is in them. Blocks are multiples
// of 16 bytes, addresses 16-byte aligned. `ids` are each of a block that the pool has, and none twice
// where blocks are written.

namespace headrace::cuda {

// Blocks into a row of bytes for the wire, or back, and the CRC-32C of each slice of these bytes:
// made before they leave the GPU, and to be compared once they have come to another. A slice lies
// within a block: `slice_bytes`, fewer at the block's end. crc32c_append (crc32c.h) makes longer
// ones of them.
struct CopyBlocks {
  std::byte* pool = nullptr;  // block b at b * block_bytes
  size_t block_bytes = 0;
  const uint32_t* ids = nullptr;  // of the device
  uint32_t count = 0;
  std::byte* staged = nullptr;  // [count, block_bytes], not of the pool
  bool to_pool = false;
  uint32_t slice_bytes = 0;  // a multiple of 16
  uint32_t* sums = nullptr;  // [count, slices_of_block]
};
constexpr uint32_t kCopySliceBytesMax = uint32_t{1} << 20;  // a block of threads has one to itself
constexpr size_t slices_of_block(const CopyBlocks& op) {
  return op.slice_bytes == 0 ? 0 : (op.block_bytes + op.slice_bytes - 1) / op.slice_bytes;
}

// The ids travel as arguments, so many a launch: a step's new blocks are cleared by one launch, and
// no copy comes before it.
struct ZeroBlocks {
  std::byte* pool = nullptr;
  size_t block_bytes = 0;
  const uint32_t* ids = nullptr;  // of the host, read before enqueue returns
  uint32_t count = 0;
};
constexpr uint32_t kZeroBlocksAtOnce = 256;

cudaError_t enqueue(const CopyBlocks& op, const Context& context);
cudaError_t enqueue(const ZeroBlocks& op, const Context& context);

// A byte is a look-up, a shift and a sum.
inline kernels::Cost cost(const CopyBlocks& op) {
  const uint64_t bytes = uint64_t{op.count} * op.block_bytes;
  return {.kv_bytes = bytes,
          .activation_bytes = bytes + uint64_t{op.count} * sizeof(uint32_t) +
                              uint64_t{op.count} * slices_of_block(op) * sizeof(uint32_t),
          .flops = 3 * bytes};
}
inline kernels::Cost cost(const ZeroBlocks& op) {
  return {.kv_bytes = uint64_t{op.count} * op.block_bytes};
}

}  // namespace headrace::cuda

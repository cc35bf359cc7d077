#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cost.h"

// The GPU's operations as host code sees them: plain structs of device pointers, what they cost,
// and how to put them on a stream. `enqueue` returns what the launch returns, and
// cudaErrorInvalidValue for a shape or an address the kernel does not do (each states them);
// nothing is launched then. An operation without elements is done at once. bf16 is a uint16_t, the
// upper half of an f32.

namespace headrace::cuda {

// to[0, bytes) = from[0, bytes). Both 16-byte aligned, not overlapping; any number of bytes.
struct CopyBytes {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

cudaError_t enqueue(const CopyBytes& op, cudaStream_t stream);

inline kernels::Cost cost(const CopyBytes& op) {
  return {.activation_bytes = 2 * static_cast<uint64_t>(op.bytes)};
}

}  // namespace headrace::cuda

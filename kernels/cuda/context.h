#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace headrace::cuda {

// Where an operation is put, and with what. `enqueue(op, context)` of each operation returns what
// the launch returns, and cudaErrorInvalidValue for a shape or an address its kernel does not do
// (its header states them); nothing is launched then. Operations without rows are done at once.
struct Context {
  cudaStream_t stream = nullptr;
  // Multiprocessors of the device: how work is spread over them. Changes no bit of a result.
  int processors = 132;
  // Scratch memory of the device, 256-byte aligned, for operations that state what they want. What
  // is in it is of no meaning between two operations.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // For products: kSpreadCounters, zero before and after. None, or a small workspace: pieces of K
  // are not spread over blocks.
  uint32_t* counters = nullptr;
};

}  // namespace headrace::cuda

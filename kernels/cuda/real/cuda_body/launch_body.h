#pragma once

#include <cuda_runtime.h>

#include <cstddef>

// How kernels are started on a real GPU. Shapes, streams and errors are the runtime's own.

namespace headrace::cuda {

// What a block gets without asking; above it the kernel must be allowed more first.
constexpr size_t kSharedBytesUnasked = 48 * 1024;

template <class... P, class... A>
cudaError_t launch_with(bool dependent, cudaStream_t stream, dim3 grid, dim3 block,
                        size_t shared_bytes, void (*kernel)(P...), A&&... args) {
  if (shared_bytes > kSharedBytesUnasked) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute serialization = {};
  serialization.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  serialization.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &serialization;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

// Starts a grid behind what is on the stream; the name is for the tests' stand-in.
template <class... P, class... A>
cudaError_t launch(const char*, cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
                   void (*kernel)(P...), A&&... args) {
  return launch_with(false, stream, grid, block, shared_bytes, kernel, args...);
}

// May begin before the launch in front has ended (programmatic dependent launch, sm_90; a plain
// launch on older devices).
template <class... P, class... A>
cudaError_t launch_dependent(const char*, cudaStream_t stream, dim3 grid, dim3 block,
                             size_t shared_bytes, void (*kernel)(P...), A&&... args) {
  int device = 0;
  int major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error != cudaSuccess) return error;
  return launch_with(major >= 9, stream, grid, block, shared_bytes, kernel, args...);
}

}  // namespace headrace::cuda

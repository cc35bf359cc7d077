#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include "kernels/buffer.h"

// The CUDA runtime as the device uses it: owners of its handles, and its errors as DeviceError.

namespace headrace::cuda {

// Throws DeviceError: "cuda:0: what: the runtime's words".
void check(cudaError_t error, int ordinal, const char* what);

// A stream that does not wait for the default one. Ended only when nothing uses it any more.
class Stream {
 public:
  explicit Stream(int ordinal);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  // All that is on it is done; polled, so that a device that hangs is an error after
  // kDeviceHangs and not a hang of ours.
  void wait() const;

 private:
  int ordinal_;
  cudaStream_t stream_ = nullptr;
};

// Device memory, zeroed. Throws std::bad_alloc where there is none left.
kernels::Buffer device_memory(int ordinal, size_t bytes, const Stream& stream);
// Host memory that a device copies from and to by itself, zeroed.
kernels::Buffer pinned_memory(int ordinal, size_t bytes);

}  // namespace headrace::cuda

#include "kernels/cuda/runtime.h"

#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "kernels/device.h"

namespace headrace::cuda {
namespace {

using std::chrono::steady_clock;

// No step is as long: a worker gives up on one long before (worker/README.md).
constexpr std::chrono::seconds kDeviceHangs{60};
// So long a wait is a busy one; a step's end should not wait for a timer.
constexpr std::chrono::milliseconds kSpin{5};
constexpr std::chrono::microseconds kPause{50};

void use(int ordinal) { check(cudaSetDevice(ordinal), ordinal, "the device cannot be used"); }

}  // namespace

void check(cudaError_t error, int ordinal, const char* what) {
  if (error == cudaSuccess) return;
  throw kernels::DeviceError("cuda:" + std::to_string(ordinal) + ": " + what + ": " +
                             cudaGetErrorString(error));
}

Stream::Stream(int ordinal) : ordinal_(ordinal) {
  use(ordinal);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), ordinal, "a stream");
}

Stream::~Stream() { cudaStreamDestroy(stream_); }

void Stream::wait() const {
  const auto begin = steady_clock::now();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state != cudaErrorNotReady) return check(state, ordinal_, "what ran on the device failed");
    const auto waited = steady_clock::now() - begin;
    if (waited > kDeviceHangs)
      throw kernels::DeviceError("cuda:" + std::to_string(ordinal_) +
                                 ": the device has not finished within " +
                                 std::to_string(kDeviceHangs.count()) + " s");
    if (waited > kSpin) std::this_thread::sleep_for(kPause);
  }
}

kernels::Buffer device_memory(int ordinal, size_t bytes, const Stream& stream) {
  if (bytes == 0) return {};
  use(ordinal);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told once
    throw std::bad_alloc();
  }
  check(error, ordinal, "memory");
  kernels::Buffer buffer(static_cast<std::byte*>(memory), bytes, [](std::byte* p) { cudaFree(p); });
  check(cudaMemsetAsync(memory, 0, bytes, stream.get()), ordinal, "memory");
  stream.wait();
  return buffer;
}

kernels::Buffer pinned_memory(int ordinal, size_t bytes) {
  if (bytes == 0) return {};
  use(ordinal);
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw std::bad_alloc();
  }
  check(error, ordinal, "pinned memory");
  std::memset(memory, 0, bytes);
  return {static_cast<std::byte*>(memory), bytes, [](std::byte* p) { cudaFreeHost(p); }};
}

}  // namespace headrace::cuda

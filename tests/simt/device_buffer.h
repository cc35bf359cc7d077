#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace headrace::simt {

// What kernel tests hold on a device, on the real runtime and on the stand-in alike.

class TestStream {
 public:
  TestStream() {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  cudaStream_t get() const { return stream_; }
  // A kernel's fault shows here, whatever had been said of its launch.
  void wait() const {
    const cudaError_t error = cudaStreamSynchronize(stream_);
    REQUIRE_MESSAGE(error == cudaSuccess, cudaGetErrorString(error));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// Device memory of exactly these values. Waits for each copy; use it outside of what is measured.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const std::vector<T>& values) : size_(values.size()) {
    REQUIRE(cudaMalloc(&memory_, size_ == 0 ? 1 : size_ * sizeof(T)) == cudaSuccess);
    copy(memory_, values.data(), cudaMemcpyHostToDevice);
  }
  ~DeviceBuffer() { cudaFree(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* get() const { return static_cast<T*>(memory_); }
  size_t size() const { return size_; }
  std::vector<T> values() const {
    std::vector<T> out(size_);
    copy(out.data(), memory_, cudaMemcpyDeviceToHost);
    return out;
  }

 private:
  void copy(void* to, const void* from, cudaMemcpyKind kind) const {
    if (size_ == 0) return;
    const TestStream stream;
    REQUIRE(cudaMemcpyAsync(to, from, size_ * sizeof(T), kind, stream.get()) == cudaSuccess);
    stream.wait();
  }

  void* memory_ = nullptr;
  size_t size_;
};

}  // namespace headrace::simt

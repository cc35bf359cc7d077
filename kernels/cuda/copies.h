#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include "kernels/buffer.h"
#include "kernels/cuda/runtime.h"

namespace headrace::cuda {

// Copies between host and device beside what computes: a stream and pinned memory of their own, in
// two halves, so that one is filled while the other travels. Any thread; done on return.
class Copies {
 public:
  explicit Copies(int ordinal);

  void write(std::byte* to, std::span<const std::byte> from);
  void read(std::span<std::byte> to, const std::byte* from);
  const Stream& stream() const { return stream_; }

 private:
  static constexpr size_t kHalf = size_t{4} << 20;

  std::byte* half(size_t n) const { return staging_.data() + n % 2 * kHalf; }

  const int ordinal_;
  std::mutex mutex_;
  Stream stream_;
  kernels::Buffer staging_;
};

}  // namespace headrace::cuda

#include "kernels/cuda/copies.h"

#include <algorithm>
#include <cstring>

namespace headrace::cuda {

Copies::Copies(int ordinal)
    : ordinal_(ordinal), stream_(ordinal), staging_(pinned_memory(ordinal, 2 * kHalf)) {}

void Copies::write(std::byte* to, std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  check(cudaSetDevice(ordinal_), ordinal_, "the device cannot be used");
  for (size_t n = 0; n * kHalf < from.size(); n++) {
    const auto part = from.subspan(n * kHalf, std::min(kHalf, from.size() - n * kHalf));
    // At most one copy is under way here, from the other half.
    std::memcpy(half(n), part.data(), part.size());
    stream_.wait();
    check(cudaMemcpyAsync(to + n * kHalf, half(n), part.size(), cudaMemcpyHostToDevice,
                          stream_.get()),
          ordinal_, "a copy to the device");
  }
  stream_.wait();
}

void Copies::read(std::span<std::byte> to, const std::byte* from) {
  const std::lock_guard lock(mutex_);
  check(cudaSetDevice(ordinal_), ordinal_, "the device cannot be used");
  const size_t parts = (to.size() + kHalf - 1) / kHalf;
  const auto size = [&](size_t n) { return std::min(kHalf, to.size() - n * kHalf); };
  for (size_t n = 0; n <= parts; n++) {
    if (n > 0) stream_.wait();
    if (n < parts)
      check(cudaMemcpyAsync(half(n), from + n * kHalf, size(n), cudaMemcpyDeviceToHost,
                            stream_.get()),
            ordinal_, "a copy from the device");
    if (n > 0) std::memcpy(to.data() + (n - 1) * kHalf, half(n - 1), size(n - 1));
  }
}

}  // namespace headrace::cuda

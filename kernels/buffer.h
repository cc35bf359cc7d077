#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace headrace::kernels {

// Memory, 64-byte aligned and zeroed; move-only. Of the host if made by its size: huge pages are
// advised, and large buffers are mapped untouched: what is never used takes no memory. A device's
// own memory comes from Device::allocate; the host may not touch that.
class Buffer {
 public:
  using Free = std::function<void(std::byte*)>;

  Buffer() = default;
  explicit Buffer(size_t bytes);  // throws std::bad_alloc
  Buffer(std::byte* data, size_t bytes, Free free)
      : data_(data), size_(bytes), free_(std::move(free)) {}
  ~Buffer();
  Buffer(Buffer&& o) noexcept;
  Buffer& operator=(Buffer&& o) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Free free_;  // empty: memory of the host, as mapped here
};

// Memory that host and device have a copy of each; on the CPU it is one and the same. What either
// writes reaches the other by Device::push and pull.
struct Mirror {
  Buffer host;
  Buffer own;  // the device's; empty where it can use the host's

  template <class T>
  T* as() const {
    return host.as<T>();
  }
  template <class T>
  T* device() const {
    return own.size() > 0 ? own.as<T>() : host.as<T>();
  }
};

}  // namespace headrace::kernels

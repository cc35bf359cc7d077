#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "protocol/link.h"

namespace headrace::worker {

static_assert(std::endian::native == std::endian::little);

// Fixed fields one behind the other, little-endian, without padding.
class FieldWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    put(std::as_bytes(std::span(&value, 1)));
  }
  void put(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void reserve(size_t n) { bytes_.reserve(n); }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// Any bytes: what is not there reads as zero, and it has not finished.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (bytes_.size() < sizeof(T)) {
      ok_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  size_t left() const { return bytes_.size(); }
  std::span<const std::byte> rest() { return std::exchange(bytes_, {}); }
  // Everything was there and nothing was left.
  bool finished() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace headrace::worker

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"

// Any operation against its reference on any path. A test describes a shape, runs the operation on
// memory from Array, and compares with close() (reference) or same_bits() (other paths, other
// splits into rows or threads).

namespace headrace::kernels::testing {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Device memory of a test: 64-byte aligned; outputs start as NaN, so a value that was never written
// shows. Guards on both sides are checked by guarded().
template <class T>
class Array {
 public:
  explicit Array(size_t n) : n_(n), memory_(2 * kGuard + (n * sizeof(T) + 63) / 64 * 64) {
    std::memset(memory_.data(), 0xff, memory_.size());  // NaN as f32, as f16 and as a scale
  }
  Array(size_t n, T value) : Array(n) { std::fill_n(data(), n, value); }

  T* data() const { return reinterpret_cast<T*>(memory_.data() + kGuard); }
  size_t size() const { return n_; }
  T& operator[](size_t i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + n_; }
  // Nobody wrote before the first or after the last element.
  bool guarded() const {
    const std::byte *first = memory_.data(), *last = first + memory_.size();
    const std::byte* after = reinterpret_cast<const std::byte*>(end());
    const auto whole = [](std::byte b) { return b == std::byte{0xff}; };
    return std::all_of(first, first + kGuard, whole) && std::all_of(after, last, whole);
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t n_;
  Buffer memory_;
};

inline Array<float> random_floats(size_t n, std::mt19937& rng, float scale = 1) {
  Array<float> a(n);
  std::normal_distribution<float> normal(0, scale);
  for (auto& x : a) x = normal(rng);
  return a;
}

// Paths that this machine can run, the portable one first.
inline std::vector<CpuPath> paths() {
  std::vector<CpuPath> all;
  for (CpuPath p : kCpuPaths) {
    if (supported(p)) all.push_back(p);
  }
  return all;
}

struct Error {
  double nmse = 0;     // sum of squared differences over sum of squared truth
  double maximum = 0;  // largest difference over the root mean square of the truth
};
// A NaN anywhere makes both NaN, which compares false with every bound.
inline Error error_of(std::span<const float> got, std::span<const float> truth) {
  double square = 0, difference = 0, largest = 0;
  bool nan = got.size() != truth.size();
  for (size_t i = 0; i < truth.size() && !nan; ++i) {
    const double d = double{got[i]} - truth[i];
    nan = std::isnan(d);
    square += double{truth[i]} * truth[i];
    difference += d * d;
    largest = std::max(largest, std::fabs(d));
  }
  if (nan) return {kNan, kNan};
  if (difference == 0) return {};
  const double rms = std::sqrt(square / static_cast<double>(truth.size()));
  return {difference / square, largest / rms};
}
template <class A, class B>
bool close(const A& got, const B& truth, double nmse, double maximum) {
  const Error e = error_of({got.data(), got.size()}, {truth.data(), truth.size()});
  return e.nmse <= nmse && e.maximum <= maximum;
}

template <class T>
bool same_bits(const T* a, const T* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(T)) == 0;
}
template <class T>
bool same_bits(const Array<T>& a, const Array<T>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

// What blocks stand for, as floats.
inline std::vector<float> dequantized(std::span<const QuantBlock> blocks) {
  std::vector<float> x;
  for (const auto& b : blocks) {
    for (int8_t q : b.q) x.push_back(b.scale * static_cast<float>(q));
  }
  return x;
}

}  // namespace headrace::kernels::testing

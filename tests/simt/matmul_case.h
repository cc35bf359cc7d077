#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_spread.h"
#include "kernels/half.h"
#include "kernels/matrix_fragments.h"
#include "kernels/ops.h"
#include "kernels/reference_rows.h"
#include "tests/kernels/weights.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/rows_case.h"

namespace headrace::simt {

using kernels::SourceType;

constexpr SourceType kSourceTypes[] = {SourceType::kF32,  SourceType::kF16,  SourceType::kBf16,
                                       SourceType::kQ8_0, SourceType::kQ4_0, SourceType::kQ4_1};

// What sums in f32 may be off by, of the root mean square of what is right: the tensor cores and
// the reference add a few thousand products in another order.
constexpr double kProductNmse = 1e-11;
constexpr double kProductMaximum = 1e-4;

struct ProductShape {
  int m;  // rows of x
  int n;
  int k;
};

// Every third of a test's cases, counted by a and b, in each configuration, the others in one.
inline void some_configurations(size_t a, size_t b, const std::function<void()>& test) {
  if ((a + b) % 3 == 0) {
    each_configuration(test);
  } else {
    test();
  }
}

// Weights and x on the host: the reference's, and those of a run.
struct ProductCase {
  ProductCase(SourceType type, const ProductShape& size, bool is_paired, uint32_t seed,
              float outlier = 1)
      : shape(size), paired(is_paired) {
    std::mt19937 random(seed);
    const auto source = kernels::testing::random_source(type, shape.n, shape.k, random);
    weights.resize(kernels::fragment_bytes(kernels::packed_type(type), shape.n, shape.k));
    w = {kernels::packed_type(type),  shape.n, shape.k, weights.data(),
         kernels::Tiling::kFragments, paired};
    for (int s = 0; s < w.tiles(); s++)
      kernels::pack_strip(type, source.data(), shape.n, shape.k, paired, s, weights.data());
    std::vector<float> values = random_floats(count(shape.m, shape.k), seed + 1);
    for (size_t i = 5; i < values.size(); i += 61) values[i] *= outlier;
    const size_t pitch = pitch_of(shape.k);
    x.resize(count(shape.m, 1) * pitch);
    sums.resize(x.size() / 32);
    kernels::deliver_rows(values.data(), shape.m, shape.k, {.bf16 = x.data(), .sums = sums.data()});
  }

  static size_t count(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }
  static size_t pitch_of(int width) { return static_cast<size_t>(kernels::bf16_pitch(width)); }

  kernels::Rows rows() const { return {.bf16 = x.data(), .sums = sums.data()}; }
  // y = w x, or y + w x.
  std::vector<float> product(std::vector<float> y = {}) const {
    const bool add = !y.empty();
    y.resize(count(shape.m, shape.n));
    kernels::reference(kernels::MatMul{w, rows(), shape.m, y.data(), shape.n, add});
    return y;
  }
  std::vector<float> gated() const {
    std::vector<float> y(count(shape.m, shape.n / 2));
    kernels::reference(kernels::MatMulSwiGlu{w, rows(), shape.m, {.f32 = y.data()}});
    return y;
  }
  // Rows [first, first + m) of x alone, with the same weights.
  ProductCase part(int first, int m) const {
    ProductCase out = *this;
    const size_t pitch = pitch_of(shape.k);
    const auto cut = [&](const auto& from, size_t width) {
      const auto begin = from.begin() + static_cast<long>(count(first, 1) * width);
      return std::vector(begin, begin + static_cast<long>(count(m, 1) * width));
    };
    out.shape.m = m;
    out.x = cut(x, pitch);
    out.sums = cut(sums, pitch / 32);
    out.w.data = out.weights.data();
    return out;
  }

  ProductShape shape;
  bool paired;
  std::vector<std::byte> weights;
  kernels::Matrix w;
  std::vector<uint16_t> x;
  std::vector<float> sums;
};

// The same on the device.
struct ProductRun {
  // `spread`: with memory in which blocks that share K can meet.
  explicit ProductRun(const ProductCase& c, int multiprocessors = 132, bool spread = false)
      : shape(c.shape),
        processors(multiprocessors),
        weights(c.weights),
        x(c.x),
        sums(c.sums),
        workspace(std::vector<float>(spread ? kWorkspace : 0, NAN)),
        counters(std::vector<uint32_t>(spread ? cuda::kSpreadCounters : 0)),
        w(c.w) {
    w.data = weights.get();
  }
  kernels::Rows rows() const { return {.bf16 = x.get(), .sums = sums.get()}; }

  // [m, n], from memory with `spare` floats between rows, which must stay as they are. NaN
  // beforehand, or what is added to.
  std::vector<float> product(const std::vector<float>& before = {}, int spare = 3) const {
    const auto width = static_cast<size_t>(shape.n);
    const size_t stride = width + static_cast<size_t>(spare);
    const auto m = static_cast<size_t>(shape.m);
    std::vector<float> memory(m * stride, NAN);
    for (size_t i = 0; i < before.size(); i++) memory[i / width * stride + i % width] = before[i];
    const DeviceBuffer<float> y(memory);
    go(kernels::MatMul{w, rows(), shape.m, y.get(), static_cast<int64_t>(stride), !before.empty()});
    memory = y.values();
    std::vector<float> out;
    for (size_t r = 0; r < m; r++) {
      for (size_t n = 0; n < stride; n++) {
        const float value = memory[r * stride + n];
        if (n < width) {
          out.push_back(value);
        } else if (!std::isnan(value)) {
          FAIL("row " << r << " is written past its end");
        }
      }
    }
    return out;
  }
  void gated(const RowsCase& out, bool floats, bool halves) const {
    go(kernels::MatMulSwiGlu{w, rows(), shape.m, out.out(floats, halves)});
  }

  template <class Op>
  void go(const Op& op) const {
    const TestStream stream;
    REQUIRE(cuda::enqueue(op, context(stream.get())) == cudaSuccess);
    stream.wait();
    for (const uint32_t counter : counters.values()) CHECK(counter == 0);
  }
  cuda::Context context(cudaStream_t stream) const {
    return {.stream = stream,
            .processors = processors,
            .workspace = workspace.get(),
            .workspace_bytes = workspace.size() * sizeof(float),
            .counters = counters.get()};
  }

  ProductShape shape;
  int processors;
  DeviceBuffer<std::byte> weights;
  DeviceBuffer<uint16_t> x;
  DeviceBuffer<float> sums;
  static constexpr size_t kWorkspace = 1 << 17;  // floats
  DeviceBuffer<float> workspace;
  DeviceBuffer<uint32_t> counters;
  kernels::Matrix w;
};

inline void check_products(const std::vector<float>& got, const std::vector<float>& truth) {
  const kernels::testing::Error error = kernels::testing::error_of(got, truth);
  CHECK(error.nmse <= kProductNmse);
  CHECK(error.maximum <= kProductMaximum);
}

// Rows [first, first + m) of a result.
inline std::vector<float> rows_of(const std::vector<float>& y, int width, int first, int m) {
  const auto begin = y.begin() + static_cast<long>(first) * width;
  return {begin, begin + static_cast<long>(m) * width};
}

}  // namespace headrace::simt

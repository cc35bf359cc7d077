#include <doctest/doctest.h>

#include "kernels/cuda/rows.h"
#include "tests/simt/configurations.h"
#include "tests/simt/rows_case.h"

namespace headrace::simt {
namespace {

// e^-x from a product rounded to f32: the power is off by |x| 2^-24, and the sigmoid moves with it
// where the power counts; 2^-22 of ex2.approx itself.
double tolerance(float gate) { return (8 + std::abs(gate)) * 0x1p-23; }

struct Shape {
  int32_t rows;
  int32_t ffn;
};
// Around a group, a pitch, a warp and a block.
constexpr Shape kShapes[] = {{1, 4},   {3, 32},   {2, 60},   {2, 64},   {5, 132},
                             {3, 576}, {2, 1020}, {1, 1024}, {2, 1028}, {1, 2304}};

std::vector<float> expected_rows(const Shape& shape, const std::vector<float>& x) {
  std::vector<float> y(static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.ffn));
  kernels::reference(kernels::SwiGlu{x.data(), shape.rows, shape.ffn, {.f32 = y.data()}});
  return y;
}

// Gates between -30 and 30, and some far outside.
std::vector<float> inputs(const Shape& shape, uint32_t seed) {
  std::vector<float> x =
      random_floats(2 * static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.ffn), seed, 3);
  for (float& v : x) v = std::min(std::max(v, -100.0f), 100.0f);
  return x;
}

void run(const Shape& shape, const DeviceBuffer<float>& x, const kernels::RowsOut& y) {
  const TestStream stream;
  const kernels::SwiGlu op{x.get(), shape.rows, shape.ffn, y};
  REQUIRE(cuda::enqueue(op, cuda::Context{.stream = stream.get()}) == cudaSuccess);
  stream.wait();
}

TEST_CASE("swiglu: widths around a group, a pitch, a block") {
  each_configuration([] {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.ffn);
      const std::vector<float> x = inputs(shape, static_cast<uint32_t>(shape.ffn));
      const DeviceBuffer<float> device_x(x);
      const RowsCase out(static_cast<size_t>(shape.rows), static_cast<size_t>(shape.ffn));
      run(shape, device_x, out.out(true, true));
      const std::vector<float> expected = expected_rows(shape, x);
      out.check_f32(expected, tolerance(100));
      out.check_bf16(expected, tolerance(100));
    }
  });
}

TEST_CASE("swiglu: near to the reference for each gate, and plain at its ends") {
  const std::vector<float> gates = {0,  -0.0f,  1e-30f, -1e-4f, 0.5f,      -1,       3,     -8,
                                    20, -30.0f, -87,    -100,   -INFINITY, INFINITY, 1e30f, -1e30f};
  std::vector<float> x = gates;
  x.insert(x.end(), gates.size(), 2.0f);
  const Shape shape{1, static_cast<int32_t>(gates.size())};
  const DeviceBuffer<float> device_x(x);
  const RowsCase out(1, gates.size());
  run(shape, device_x, out.out(true, false));
  const std::vector<float> got = out.f32.values();
  const std::vector<float> expected = expected_rows(shape, x);
  for (size_t i = 0; i < gates.size(); i++) {
    CAPTURE(gates[i]);
    if (std::isnan(expected[i])) {
      CHECK(std::isnan(got[i]));
    } else if (std::isinf(expected[i])) {
      CHECK(got[i] == expected[i]);
    } else {
      CHECK(std::abs(got[i] - expected[i]) <=
            std::abs(expected[i]) * tolerance(std::min(std::abs(gates[i]), 100.0f)) + kNothing);
    }
  }
}

TEST_CASE("swiglu: a row's bits are the same whatever rows stand beside it") {
  const Shape shape{3, 196};
  const std::vector<float> x = inputs(shape, 3);
  const DeviceBuffer<float> device_x(x);
  const RowsCase all(3, 196);
  run(shape, device_x, all.out(true, true));
  for (size_t r = 0; r < 3; r++) {
    const auto begin = x.begin() + static_cast<long>(2 * r * 196);
    const DeviceBuffer<float> one(std::vector<float>(begin, begin + 2 * 196));
    const RowsCase alone(1, 196);
    run({1, 196}, one, alone.out(true, true));
    CHECK(row_bits(alone, 0) == row_bits(all, r));
  }
}

TEST_CASE("swiglu: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<float> x(std::vector<float>(128, 1.0f));
  const RowsCase out(1, 64);
  const TestStream stream;
  const auto enqueue = [&](const float* from, int32_t rows, int32_t ffn,
                           const kernels::RowsOut& y) {
    return cuda::enqueue(kernels::SwiGlu{from, rows, ffn, y},
                         cuda::Context{.stream = stream.get()});
  };
  const kernels::RowsOut y = out.out(true, true);
  CHECK(enqueue(x.get(), 1, 62, y) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), -1, 64, y) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get() + 1, 1, 64, y) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 1, 64, {}) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 1, 64, {.bf16 = y.bf16}) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 0x7fffffff, 2048, y) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 0, 64, y) == cudaSuccess);
  CHECK(enqueue(x.get(), 1, 0, y) == cudaSuccess);
  stream.wait();
  for (const float f : out.f32.values()) CHECK(std::isnan(f));
}

}  // namespace
}  // namespace headrace::simt

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/ops.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/w4_case.h"

namespace headrace::simt {
namespace {

// Products with 128 + q are some 150 times larger than what is left of them; each of a group's 32
// additions rounds by up to 2^-24 of its sum.
constexpr double kTolerance = 150 * 0x1p-24 * 8;

struct Shape {
  uint32_t rows;
  uint32_t columns;
};
// Rows around a warp's four and a block's sixteen, columns around the 1024 a warp takes at a time.
constexpr Shape kShapes[] = {{3, 0},    {1, 32},    {3, 64},    {4, 96},    {5, 992},  {15, 576},
                             {16, 256}, {17, 1024}, {31, 1056}, {33, 1536}, {16, 4096}};

void check_close(const std::vector<float>& got, const W4Case& expected) {
  REQUIRE(got.size() == expected.rows);
  for (uint32_t r = 0; r < expected.rows; r++) {
    if (std::abs(got[r] - expected.y[r]) <= kTolerance * expected.scale_of_error[r]) continue;
    FAIL("row " << r << ": " << got[r] << ", expected " << expected.y[r] << ", error "
                << (got[r] - expected.y[r]) / expected.scale_of_error[r] / kTolerance
                << " of the tolerance");
  }
}

TEST_CASE("w4 gemv: rows around a warp and a block, columns around a warp's groups") {
  each_configuration([] {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.columns);
      const W4Case expected(shape.rows, shape.columns, shape.rows + shape.columns);
      const W4OnDevice w(expected);
      const DeviceBuffer<uint16_t> x(expected.x);
      const DeviceBuffer<float> y(std::vector<float>(shape.rows, NAN));
      const TestStream stream;
      REQUIRE(cuda::enqueue(cuda::W4Gemv{y.get(), w.matrix(), x.get()}, stream.get()) ==
              cudaSuccess);
      stream.wait();
      check_close(y.values(), expected);
    }
  });
}

TEST_CASE("w4 gemv: x may come from the launch in front") {
  each_configuration([] {
    const W4Case expected(20, 2048, 7);
    const W4OnDevice w(expected);
    const DeviceBuffer<uint16_t> source(expected.x);
    const DeviceBuffer<uint16_t> x(std::vector<uint16_t>(2048, 0x7fc0));
    const DeviceBuffer<float> y(std::vector<float>(20, NAN));
    const TestStream stream;
    REQUIRE(cuda::enqueue(cuda::CopyBytes{x.get(), source.get(), 4096}, stream.get()) ==
            cudaSuccess);
    REQUIRE(cuda::enqueue(cuda::W4Gemv{y.get(), w.matrix(), x.get()}, stream.get()) == cudaSuccess);
    stream.wait();
    check_close(y.values(), expected);
  });
}

TEST_CASE("w4 gemv: as many columns as it does") {
  const W4Case expected(2, cuda::kW4GemvColumnsMax, 9);
  const W4OnDevice w(expected);
  const DeviceBuffer<uint16_t> x(expected.x);
  const DeviceBuffer<float> y(std::vector<float>(2, NAN));
  const TestStream stream;
  REQUIRE(cuda::enqueue(cuda::W4Gemv{y.get(), w.matrix(), x.get()}, stream.get()) == cudaSuccess);
  stream.wait();
  check_close(y.values(), expected);
}

TEST_CASE("w4 gemv: what it does not do is refused, nothing is done at once") {
  const W4Case small(1, 64, 5);
  const W4OnDevice w(small);
  const DeviceBuffer<uint16_t> x(small.x);
  const DeviceBuffer<float> y({1.0f});
  const TestStream stream;
  const auto enqueue = [&](cuda::W4Matrix matrix, const uint16_t* from) {
    return cuda::enqueue(cuda::W4Gemv{y.get(), matrix, from}, stream.get());
  };
  cuda::W4Matrix bad = w.matrix();
  bad.columns = 48;
  CHECK(enqueue(bad, x.get()) == cudaErrorInvalidValue);
  bad.columns = cuda::kW4GemvColumnsMax + cuda::kW4Group;
  CHECK(enqueue(bad, x.get()) == cudaErrorInvalidValue);
  bad = w.matrix();
  bad.quants += 1;
  CHECK(enqueue(bad, x.get()) == cudaErrorInvalidValue);
  CHECK(enqueue(w.matrix(), x.get() + 1) == cudaErrorInvalidValue);
  bad = w.matrix();
  bad.rows = 0;
  CHECK(enqueue(bad, x.get()) == cudaSuccess);
  stream.wait();
  CHECK(y.values() == std::vector<float>{1.0f});
}

TEST_CASE("w4 gemv: cost is 4.5 bits a weight") {
  const kernels::Cost cost = cuda::cost(cuda::W4Gemv{nullptr, {nullptr, nullptr, 10, 64}, nullptr});
  CHECK(cost.weight_bytes == 10 * 64 * 9 / 16);
  CHECK(cost.activation_bytes == 64 * 2 + 10 * 4);
  CHECK(cost.flops == 2 * 10 * 64);
}

}  // namespace
}  // namespace headrace::simt

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/ops.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/numbers.h"

namespace headrace::simt {
namespace {

// Half a step of bf16 (8 bits), and a little for sums in f32.
constexpr double kTolerance = 0x1p-8 * 1.01;

struct Shape {
  uint32_t rows;
  uint32_t columns;
};
// Around a warp's and a block's worth of vectors, one to four vectors a thread.
constexpr Shape kShapes[] = {{1, 8},    {3, 16},   {2, 248},  {2, 256},  {2, 264},   {5, 576},
                             {2, 2048}, {1, 4088}, {1, 4096}, {1, 4104}, {1, 12296}, {1, 16384}};

std::vector<double> reference(const std::vector<uint16_t>& in, const std::vector<uint16_t>& gain,
                              Shape shape, double epsilon) {
  std::vector<double> out;
  for (uint32_t r = 0; r < shape.rows; r++) {
    double sum = 0;
    for (uint32_t c = 0; c < shape.columns; c++) {
      sum += std::pow(bf16_value(in[r * shape.columns + c]), 2);
    }
    const double factor = 1 / std::sqrt(sum / shape.columns + epsilon);
    for (uint32_t c = 0; c < shape.columns; c++) {
      out.push_back(bf16_value(in[r * shape.columns + c]) * factor * bf16_value(gain[c]));
    }
  }
  return out;
}

void check_close(const std::vector<uint16_t>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); i++) {
    if (std::abs(bf16_value(got[i]) - expected[i]) <= std::abs(expected[i]) * kTolerance) continue;
    FAIL("element " << i << ": " << bf16_value(got[i]) << ", expected " << expected[i]);
  }
}

TEST_CASE("row norm: every number of vectors a thread, in place or not") {
  each_configuration([] {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.columns);
      // Small values too, so that epsilon counts.
      const std::vector<uint16_t> in =
          random_bf16s(size_t{shape.rows} * shape.columns, shape.columns, 0.01f);
      const std::vector<uint16_t> gain = random_bf16s(shape.columns, 2);
      const std::vector<double> expected = reference(in, gain, shape, 1e-5f);
      const DeviceBuffer<uint16_t> device_in(in);
      const DeviceBuffer<uint16_t> device_gain(gain);
      const DeviceBuffer<uint16_t> out(std::vector<uint16_t>(in.size(), 0x7fc0));
      const TestStream stream;
      cuda::RowNorm op{out.get(),  device_in.get(), device_gain.get(),
                       shape.rows, shape.columns,   1e-5f};
      REQUIRE(cuda::enqueue(op, stream.get()) == cudaSuccess);
      stream.wait();
      check_close(out.values(), expected);
      op.out = device_in.get();
      REQUIRE(cuda::enqueue(op, stream.get()) == cudaSuccess);
      stream.wait();
      check_close(device_in.values(), expected);
    }
  });
}

TEST_CASE("row norm: a row of zeros stays one") {
  const DeviceBuffer<uint16_t> row(std::vector<uint16_t>(64, 0));
  const DeviceBuffer<uint16_t> gain(random_bf16s(64, 3));
  const TestStream stream;
  const cuda::RowNorm op{row.get(), row.get(), gain.get(), 1, 64, 1e-6f};
  REQUIRE(cuda::enqueue(op, stream.get()) == cudaSuccess);
  stream.wait();
  for (const uint16_t b : row.values()) CHECK((b & 0x7fff) == 0);
}

TEST_CASE("row norm: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<uint16_t> memory(random_bf16s(64, 4));
  uint16_t* p = memory.get();
  const TestStream stream;
  const auto enqueue = [&](uint16_t* out, uint16_t* in, uint16_t* gain, uint32_t rows,
                           uint32_t columns) {
    return cuda::enqueue(cuda::RowNorm{out, in, gain, rows, columns, 1e-5f}, stream.get());
  };
  CHECK(enqueue(p, p, p, 1, 12) == cudaErrorInvalidValue);
  CHECK(enqueue(p, p, p, 1, cuda::kRowNormColumnsMax + 8) == cudaErrorInvalidValue);
  CHECK(enqueue(p, p, p, 0x80000000, 8) == cudaErrorInvalidValue);
  CHECK(enqueue(p + 4, p, p, 1, 8) == cudaErrorInvalidValue);
  CHECK(enqueue(p, p + 4, p, 1, 8) == cudaErrorInvalidValue);
  CHECK(enqueue(p, p, p + 4, 1, 8) == cudaErrorInvalidValue);
  CHECK(enqueue(p, p, p, 0, 8) == cudaSuccess);
  CHECK(enqueue(p, p, p, 4, 0) == cudaSuccess);
  stream.wait();
  CHECK(memory.values() == random_bf16s(64, 4));
}

TEST_CASE("row norm: cost") {
  const kernels::Cost cost = cuda::cost(cuda::RowNorm{nullptr, nullptr, nullptr, 3, 64, 0});
  CHECK(cost.weight_bytes == 128);
  CHECK(cost.activation_bytes == 3 * 64 * 4);
  CHECK(cost.flops == 3 * 64 * 4);
}

}  // namespace
}  // namespace headrace::simt

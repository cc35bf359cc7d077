#include <doctest/doctest.h>

#include "kernels/cuda/rows.h"
#include "tests/simt/configurations.h"
#include "tests/simt/rows_case.h"

namespace headrace::simt {
namespace {

// f32 sums of squares, all positive: in the worst order a rounding for each of up to 32 terms of a
// thread, 5 of a warp and 16 of a block, halved by the root, and a few products.
constexpr double kTolerance = 32 * 0x1p-24;

struct Shape {
  int32_t rows;
  int32_t dim;
};
// Around a group, a pitch, a warp's and a block's worth of vectors, one to eight vectors a thread.
constexpr Shape kShapes[] = {{1, 4},    {3, 32},   {2, 60},   {2, 64},    {3, 124},  {2, 128},
                             {2, 132},  {5, 576},  {1, 2044}, {2, 2048},  {1, 2052}, {1, 4096},
                             {1, 4100}, {1, 8192}, {1, 8196}, {1, 12300}, {1, 16384}};

std::vector<float> expected_rows(kernels::RmsNorm op, const std::vector<float>& x,
                                 const std::vector<float>& gain) {
  std::vector<float> y(x.size());
  op.x = x.data();
  op.gain = gain.data();
  op.y = {.f32 = y.data()};
  kernels::reference(op);
  return y;
}

struct Run {
  Run(const Shape& shape, const std::vector<float>& values, const std::vector<float>& gains)
      : x(values),
        gain(gains),
        out(static_cast<size_t>(shape.rows), static_cast<size_t>(shape.dim)),
        op{x.get(), gain.get(), shape.rows, shape.dim, 1e-5f, out.out(true, true)} {}
  void go() const {
    const TestStream stream;
    REQUIRE(cuda::enqueue(op, cuda::Context{.stream = stream.get()}) == cudaSuccess);
    stream.wait();
  }

  DeviceBuffer<float> x;
  DeviceBuffer<float> gain;
  RowsCase out;
  kernels::RmsNorm op;
};

TEST_CASE("rms norm: every number of vectors a thread, each destination alone or both") {
  each_configuration([] {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.dim);
      const auto width = static_cast<size_t>(shape.dim);
      // Small values too, so that eps counts.
      const std::vector<float> x =
          random_floats(static_cast<size_t>(shape.rows) * width, 1 + static_cast<uint32_t>(width),
                        width % 64 == 0 ? 1.0f : 0.001f);
      const std::vector<float> gain = random_floats(width, 2);
      Run run(shape, x, gain);
      const std::vector<float> expected = expected_rows(run.op, x, gain);
      run.go();
      run.out.check_f32(expected, kTolerance);
      run.out.check_bf16(expected, kTolerance);
    }
  });
}

TEST_CASE("rms norm: one destination leaves the other alone; f32 may be x itself") {
  const Shape shape{3, 196};
  const std::vector<float> x = random_floats(3 * 196, 5);
  const std::vector<float> gain = random_floats(196, 6);
  for (const bool floats : {true, false}) {
    Run run(shape, x, gain);
    const std::vector<float> expected = expected_rows(run.op, x, gain);
    run.op.y = run.out.out(floats, !floats);
    run.go();
    if (floats) {
      run.out.check_f32(expected, kTolerance);
      for (const uint16_t b : run.out.bf16.values()) CHECK(b == 0x7fc0);
      run.op.y = {.f32 = run.x.get()};
      run.go();
      CHECK(run.x.values() == run.out.f32.values());
    } else {
      run.out.check_bf16(expected, kTolerance);
      for (const float f : run.out.f32.values()) CHECK(std::isnan(f));
    }
  }
}

TEST_CASE("rms norm: a row's bits are the same whatever rows stand beside it") {
  const std::vector<float> x = random_floats(4 * 1028, 7);
  const std::vector<float> gain = random_floats(1028, 8);
  const Run all({4, 1028}, x, gain);
  all.go();
  for (size_t r = 0; r < 4; r++) {
    const auto begin = x.begin() + static_cast<long>(r * 1028);
    const Run alone({1, 1028}, std::vector<float>(begin, begin + 1028), gain);
    alone.go();
    CHECK(row_bits(alone.out, 0) == row_bits(all.out, r));
  }
}

TEST_CASE("rms norm: x may come from the launch in front, y go to the one behind") {
  each_configuration([] {
    const std::vector<float> rows = random_floats(5 * 320, 9);
    const std::vector<float> gain = random_floats(320, 10);
    const DeviceBuffer<float> source(rows);
    const DeviceBuffer<int32_t> index({4, 1, 2});
    const DeviceBuffer<float> last(std::vector<float>(3 * 320, NAN));
    const Run run({3, 320}, std::vector<float>(3 * 320, NAN), gain);
    const TestStream stream;
    const cuda::Context context{.stream = stream.get()};
    const kernels::GatherRows before{source.get(), index.get(), 3, 320, run.x.get()};
    const kernels::GatherRows behind{run.out.f32.get(), index.get() + 1, 2, 320, last.get()};
    REQUIRE(cuda::enqueue(before, context) == cudaSuccess);
    REQUIRE(cuda::enqueue(run.op, context) == cudaSuccess);
    REQUIRE(cuda::enqueue(behind, context) == cudaSuccess);
    stream.wait();
    std::vector<float> x;
    for (const size_t r : {4, 1, 2}) {
      x.insert(x.end(), rows.begin() + static_cast<long>(r * 320),
               rows.begin() + static_cast<long>((r + 1) * 320));
    }
    run.out.check_f32(expected_rows(run.op, x, gain), kTolerance);
    const std::vector<float> y = run.out.f32.values();
    const std::vector<float> copied = last.values();
    CHECK(std::equal(y.begin() + 320, y.end(), copied.begin()));
  });
}

TEST_CASE("rms norm: zeros stay zeros, a NaN stays in its row") {
  std::vector<float> x(3 * 64, 0.0f);
  x[64] = NAN;
  for (size_t i = 128; i < 192; i++) x[i] = 1;
  const Run run({3, 64}, x, std::vector<float>(64, 2.0f));
  run.go();
  const std::vector<float> y = run.out.f32.values();
  for (size_t i = 0; i < 64; i++) {
    CHECK(y[i] == 0);
    CHECK(std::isnan(y[64 + i]));
    CHECK(y[128 + i] == doctest::Approx(2).epsilon(1e-4));
  }
}

TEST_CASE("rms norm: what it does not do is refused, nothing is done at once") {
  const Run good({1, 64}, std::vector<float>(64, 1.0f), std::vector<float>(64, 1.0f));
  const TestStream stream;
  const auto refused = [&](auto change) {
    kernels::RmsNorm op = good.op;
    change(op);
    return cuda::enqueue(op, cuda::Context{.stream = stream.get()}) == cudaErrorInvalidValue;
  };
  using Op = kernels::RmsNorm;
  CHECK(refused([](Op& op) { op.dim = 62; }));
  CHECK(refused([](Op& op) { op.dim = -4; }));
  CHECK(refused([](Op& op) { op.dim = cuda::kRmsNormDimMax + 4; }));
  CHECK(refused([](Op& op) { op.rows = -1; }));
  CHECK(refused([](Op& op) { op.x += 1; }));
  CHECK(refused([](Op& op) { op.gain += 1; }));
  CHECK(refused([](Op& op) { op.y = {}; }));
  CHECK(refused([](Op& op) { op.y.sums = nullptr; }));
  CHECK(refused([](Op& op) { op.y.bf16 += 1; }));
  kernels::QuantBlock block;
  CHECK(refused([&](Op& op) { op.y.q = &block; }));
  kernels::RmsNorm none = good.op;
  none.rows = 0;
  CHECK(cuda::enqueue(none, cuda::Context{.stream = stream.get()}) == cudaSuccess);
  stream.wait();
  for (const float f : good.out.f32.values()) CHECK(std::isnan(f));
}

}  // namespace
}  // namespace headrace::simt

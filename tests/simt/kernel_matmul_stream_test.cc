#include <doctest/doctest.h>

#include <iterator>

#include "tests/simt/configurations.h"
#include "tests/simt/matmul_case.h"

namespace headrace::simt {
namespace {

// Rows around a tile and each number of them; N around a strip, two, and a sector; K around a
// group, a unit, a piece of one and of several units.
constexpr ProductShape kShapes[] = {{1, 16, 32},  {2, 1, 64},   {7, 15, 96},  {8, 17, 512},
                                    {9, 32, 576}, {16, 33, 64}, {17, 31, 32}, {25, 40, 544},
                                    {32, 24, 96}, {1, 48, 1088}};

TEST_CASE("matmul, few rows: every type, around strips, tiles, units and pieces") {
  for (const SourceType type : kSourceTypes) {
    for (size_t i = 0; i < std::size(kShapes); i++) {
      const ProductShape& shape = kShapes[i];
      const ProductCase c(type, shape, false, 1 + static_cast<uint32_t>(shape.k));
      const std::vector<float> truth = c.product();
      some_configurations(i, static_cast<size_t>(type), [&] {
        CAPTURE(static_cast<int>(type));
        CAPTURE(shape.m);
        CAPTURE(shape.n);
        CAPTURE(shape.k);
        check_products(ProductRun(c).product(), truth);
      });
    }
  }
}

TEST_CASE("matmul, few rows: K that is no multiple of 32, for float weights") {
  for (const SourceType type : {SourceType::kF32, SourceType::kF16, SourceType::kBf16}) {
    for (const int k : {1, 33, 70}) {
      const ProductCase c(type, {3, 20, k}, false, 3);
      check_products(ProductRun(c).product(), c.product());
    }
  }
}

TEST_CASE("matmul, few rows: long sums and outliers") {
  for (const SourceType type : kSourceTypes) {
    const ProductCase c(type, {2, 16, 4160}, false, 4, 1000);
    check_products(ProductRun(c).product(), c.product());
  }
}

TEST_CASE("matmul, few rows: a row's bits are its own, whatever stands beside it, on any device") {
  for (const SourceType type : kSourceTypes) {
    const ProductCase all(type, {33, 144, 576}, false, 5);
    const std::vector<float> y = ProductRun(all).product();
    CAPTURE(static_cast<int>(type));
    // Tiles, one to four strips a block, as many blocks as strips.
    for (const int processors : {1, 2, 1000}) CHECK(ProductRun(all, processors).product() == y);
    for (const int m : {1, 2, 7, 8, 9, 16, 17}) {
      const int first = 33 - m;
      CAPTURE(m);
      CHECK(ProductRun(all.part(first, m), m).product() == rows_of(y, 144, first, m));
    }
  }
}

TEST_CASE("matmul, few rows: rounds of strips in every order") {
  for (const SourceType type : {SourceType::kF32, SourceType::kQ4_1}) {
    const ProductCase c(type, {3, 16 * 19, 192}, false, 6);
    const std::vector<float> truth = c.product();
    each_configuration([&] { check_products(ProductRun(c, 1).product(), truth); });
  }
}

TEST_CASE("matmul, few rows: add keeps what was there") {
  const ProductCase c(SourceType::kQ8_0, {5, 40, 160}, false, 7);
  const std::vector<float> before = random_floats(5 * 40, 8);
  const std::vector<float> plain = ProductRun(c).product();
  const std::vector<float> truth = c.product(before);
  each_configuration([&] {
    const std::vector<float> got = ProductRun(c).product(before);
    check_products(got, truth);
    for (size_t i = 0; i < got.size(); i++) REQUIRE(got[i] == before[i] + plain[i]);
  });
}

TEST_CASE("matmul, few rows: a NaN stays in its row; rows of zeros give zeros") {
  for (const SourceType type : kSourceTypes) {
    ProductCase c(type, {3, 20, 64}, false, 9);
    c.x[64 + 3] = 0x7fc0;
    c.sums[2] = NAN;
    std::fill(c.x.begin() + 128, c.x.end(), uint16_t{0});
    std::fill(c.sums.begin() + 4, c.sums.end(), 0.0f);
    const std::vector<float> y = ProductRun(c).product();
    for (size_t n = 0; n < 20; n++) {
      CHECK(std::isfinite(y[n]));
      CHECK(std::isnan(y[20 + n]));
      CHECK(y[40 + n] == 0);
    }
  }
}

TEST_CASE("matmul, few rows: weights at their extremes are exact") {
  // One x that is not zero: each result is a weight. All bytes and nibbles there are, and scales
  // and f16 that are subnormal.
  for (const SourceType type : kSourceTypes) {
    ProductCase c(type, {1, 256, 64}, false, 10);
    for (size_t i = 0; i < c.weights.size(); i += 2) {
      const auto bits = static_cast<uint16_t>(i / 2 * 40503 & 0x87ff);
      std::memcpy(c.weights.data() + i, &bits, 2);
    }
    std::fill(c.x.begin(), c.x.end(), uint16_t{0});
    c.x[37] = 0x3f80;
    c.sums = {0, 1};
    const std::vector<float> y = ProductRun(c).product();
    CAPTURE(static_cast<int>(type));
    for (int n = 0; n < 256; n++)
      CHECK(y[static_cast<size_t>(n)] == kernels::weight_at(c.w, n, 37));
  }
}

TEST_CASE("matmul, few rows: weights of another layout are another product") {
  // The tests' own eyes: what was packed as pairs is not taken for what was not.
  const ProductCase c(SourceType::kQ4_0, {2, 32, 64}, true, 11);
  ProductCase wrong = c;
  wrong.w.data = wrong.weights.data();
  wrong.w.paired = false;
  const std::vector<float> truth = c.product();
  CHECK(kernels::testing::error_of(ProductRun(wrong).product(), truth).nmse > 0.1);
}

TEST_CASE("matmul: x may come from the launch in front, and y be its own") {
  each_configuration([] {
    const ProductCase first(SourceType::kQ4_0, {4, 64, 128}, true, 12);
    const ProductCase second(SourceType::kQ8_0, {4, 48, 32}, false, 13);
    const ProductRun one(first);
    const ProductRun two(second);
    const RowsCase between(4, 32);
    const DeviceBuffer<float> y(std::vector<float>(4 * 48, 1.0f));
    const TestStream stream;
    const cuda::Context context{.stream = stream.get()};
    REQUIRE(cuda::enqueue(kernels::MatMulSwiGlu{one.w, one.rows(), 4, between.out(true, true)},
                          context) == cudaSuccess);
    const kernels::Rows x{.bf16 = between.bf16.get(), .sums = between.sums.get()};
    for (int i = 0; i < 2; i++) {
      REQUIRE(cuda::enqueue(kernels::MatMul{two.w, x, 4, y.get(), 48, true}, context) ==
              cudaSuccess);
    }
    stream.wait();
    ProductCase truth = second;
    truth.w.data = truth.weights.data();
    truth.x = between.bf16.values();
    truth.sums = between.sums.values();
    check_products(y.values(), truth.product(truth.product(std::vector<float>(4 * 48, 1.0f))));
  });
}

}  // namespace
}  // namespace headrace::simt

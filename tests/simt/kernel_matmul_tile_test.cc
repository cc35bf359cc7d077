#include <doctest/doctest.h>

#include <iterator>

#include "tests/simt/configurations.h"
#include "tests/simt/matmul_case.h"

namespace headrace::simt {
namespace {

// Rows around a block's 64, N around a strip, a warp's two and a block's eight, K around a ring.
constexpr ProductShape kShapes[] = {
    {65, 16, 64}, {130, 33, 32}, {65, 130, 96}, {66, 17, 576}, {33, 40, 544}};

TEST_CASE("matmul, many rows: every type, around blocks, strips, units and pieces") {
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

TEST_CASE("matmul: one row, few rows and many rows have the same bits") {
  for (const SourceType type : kSourceTypes) {
    const ProductCase all(type, {257, 48, 672}, false, 21);
    const std::vector<float> y = ProductRun(all).product();
    CAPTURE(static_cast<int>(type));
    check_products(y, all.product());
    struct Part {
      int first, m;
    };
    for (const Part part : {Part{0, 64}, {64, 65}, {256, 1}, {120, 33}, {3, 130}}) {
      CAPTURE(part.m);
      const std::vector<float> alone = ProductRun(all.part(part.first, part.m)).product();
      CHECK(alone == rows_of(y, 48, part.first, part.m));
    }
  }
}

TEST_CASE("matmul, many rows: pieces of K over blocks change no bit, in every order") {
  // Blocks that have the same number of pieces and not, one piece each, all of them.
  struct Case {
    ProductShape shape;
    int processors;
    unsigned shares;
  };
  constexpr Case kCases[] = {{{40, 130, 512}, 4, 2},
                             {{33, 16, 1000}, 4, 4},
                             {{100, 48, 1088}, 6, 3},
                             {{70, 20, 1600}, 132, 7},
                             {{40, 16, 1024}, 1, 1}};
  for (size_t i = 0; i < std::size(kCases); i++) {
    const ProductShape& shape = kCases[i].shape;
    const int processors = kCases[i].processors;
    const unsigned shares = kCases[i].shares;
    CAPTURE(shape.k);
    const SourceType type = i == 1   ? SourceType::kBf16
                            : i == 2 ? SourceType::kF32
                                     : SourceType::kQ4_1;
    const ProductCase c(type, shape, false, 25);
    const auto strips = static_cast<uint32_t>(c.w.tiles());
    const auto units = static_cast<uint32_t>(c.w.units());
    CHECK(cuda::spread_of(strips, units, static_cast<uint32_t>(shape.m),
                          static_cast<uint32_t>(processors))
              .shares == shares);
    const std::vector<float> y = ProductRun(c).product();
    check_products(y, c.product());
    each_configuration([&] {
      const ProductRun run(c, processors, true);
      CHECK(run.product() == y);
      CHECK(std::isnan(run.workspace.values()[0]) == (shares == 1));
    });
  }
}

TEST_CASE("how pieces are spread is bounded, covers K, and is for few blocks") {
  for (const uint32_t n : {16u, 1024u, 4096u, 6144u, 28672u, 128256u}) {
    for (const uint32_t k : {64u, 576u, 4096u, 14336u}) {
      for (const uint32_t m : {33u, 64u, 65u, 128u, 200u, 256u, 2048u}) {
        for (const uint32_t processors : {1u, 108u, 132u}) {
          const cuda::Spread s = cuda::spread_of(n / 16, k / 64, m, processors);
          CHECK(s.of_share * s.shares >= s.pieces);
          CHECK(s.of_share * (s.shares - 1) < s.pieces);
          CHECK((s.shares == 1 || s.blocks <= cuda::kSpreadCounters));
          CHECK(s.blocks * s.sums() * 32768 <= cuda::kSpreadBytes);
        }
      }
    }
  }
  // 8B on an H100 and an A100, as the README has them.
  const auto shares = [](uint32_t n, uint32_t k, uint32_t m) {
    return std::pair(cuda::spread_of(n / 16, k / 64, m, 132).shares,
                     cuda::spread_of(n / 16, k / 64, m, 108).shares);
  };
  using Both = std::pair<uint32_t, uint32_t>;
  CHECK(shares(4096, 4096, 64) == Both{4, 2});
  CHECK(shares(4096, 4096, 128) == Both{2, 1});
  CHECK(shares(4096, 14336, 128) == Both{2, 4});
  CHECK(shares(28672, 4096, 64) == Both{1, 1});
  CHECK(shares(4096, 4096, 256) == Both{1, 1});
}

TEST_CASE("matmul and SwiGlu: pieces of K over blocks change no bit") {
  const ProductCase c(SourceType::kQ8_0, {50, 80, 1024}, true, 26);
  const RowsCase spread(50, 40);
  const RowsCase alone(50, 40);
  ProductRun(c, 132, true).gated(spread, true, true);
  ProductRun(c).gated(alone, true, true);
  CHECK(spread.f32.values() == alone.f32.values());
  CHECK(spread.bf16.values() == alone.bf16.values());
  CHECK(spread.sums.values() == alone.sums.values());
}

TEST_CASE("matmul, many rows: add keeps what was there") {
  const ProductCase c(SourceType::kQ4_1, {70, 40, 160}, false, 22);
  const std::vector<float> before = random_floats(70 * 40, 23);
  const std::vector<float> plain = ProductRun(c).product();
  each_configuration([&] {
    const std::vector<float> got = ProductRun(c).product(before);
    for (size_t i = 0; i < got.size(); i++) REQUIRE(got[i] == before[i] + plain[i]);
  });
}

TEST_CASE("matmul, many rows: a NaN stays in its row") {
  ProductCase c(SourceType::kBf16, {67, 20, 64}, false, 24);
  c.x[65 * 64 + 3] = 0x7fc0;
  const std::vector<float> y = ProductRun(c).product();
  for (size_t i = 0; i < y.size(); i++) CHECK(std::isnan(y[i]) == (i / 20 == 65));
}

// ---- with SwiGlu

// What the product's tolerance leaves of silu(a) b, and the fast exponential's own.
void check_gated(const RowsCase& got, const std::vector<float>& truth) {
  const std::vector<float> y = got.f32.values();
  check_products(y, truth);
  got.check_bf16(y, 0);
}

TEST_CASE("matmul and SwiGlu: every type, around tiles, quads of strips and blocks") {
  constexpr ProductShape kPaired[] = {{1, 16, 64},  {3, 48, 96},   {9, 80, 64},
                                      {33, 64, 96}, {65, 144, 64}, {66, 16, 96}};
  for (const SourceType type : kSourceTypes) {
    for (size_t i = 0; i < std::size(kPaired); i++) {
      const ProductShape& shape = kPaired[i];
      const ProductCase c(type, shape, true, 31);
      const std::vector<float> truth = c.gated();
      some_configurations(i, static_cast<size_t>(type), [&] {
        CAPTURE(static_cast<int>(type));
        CAPTURE(shape.m);
        CAPTURE(shape.n);
        const RowsCase out(static_cast<size_t>(shape.m), static_cast<size_t>(shape.n / 2));
        ProductRun(c).gated(out, true, true);
        check_gated(out, truth);
      });
    }
  }
}

TEST_CASE("matmul and SwiGlu: one destination leaves the other alone") {
  for (const int m : {2, 66}) {
    const ProductCase c(SourceType::kQ4_0, {m, 48, 64}, true, 32);
    const ProductRun run(c);
    const RowsCase both(static_cast<size_t>(m), 24);
    run.gated(both, true, true);
    for (const bool floats : {true, false}) {
      const RowsCase one(static_cast<size_t>(m), 24);
      run.gated(one, floats, !floats);
      if (floats) {
        CHECK(one.f32.values() == both.f32.values());
        for (const uint16_t b : one.bf16.values()) REQUIRE(b == 0x7fc0);
      } else {
        CHECK(one.bf16.values() == both.bf16.values());
        CHECK(one.sums.values() == both.sums.values());
        for (const float f : one.f32.values()) REQUIRE(std::isnan(f));
      }
    }
  }
}

TEST_CASE("matmul and SwiGlu: a row's bits are its own, whatever stands beside it") {
  for (const SourceType type : kSourceTypes) {
    const ProductCase c(type, {70, 80, 160}, true, 33);
    const RowsCase all(70, 40);
    ProductRun(c).gated(all, true, true);
    for (const int m : {1, 9, 33}) {
      const RowsCase some(static_cast<size_t>(m), 40);
      ProductRun(c.part(70 - m, m), m).gated(some, true, true);
      CHECK(row_bits(some, 0) == row_bits(all, static_cast<size_t>(70 - m)));
      CHECK(row_bits(some, static_cast<size_t>(m - 1)) == row_bits(all, 69));
    }
  }
}

TEST_CASE("matmul: what it does not do is refused, nothing is done at once") {
  const ProductCase c(SourceType::kQ4_1, {1, 16, 64}, false, 41);
  const ProductRun run(c);
  const DeviceBuffer<float> y(std::vector<float>(16, NAN));
  const TestStream stream;
  const kernels::MatMul good{run.w, run.rows(), 1, y.get(), 16, false};
  using Op = kernels::MatMul;
  const auto result = [&](auto change) {
    Op op = good;
    change(op);
    return cuda::enqueue(op, cuda::Context{.stream = stream.get()});
  };
  const auto refused = [&](auto change) { return result(change) == cudaErrorInvalidValue; };
  CHECK(refused([](Op& op) { op.w.tiling = kernels::Tiling::kLanes; }));
  CHECK(refused([](Op& op) { op.w.paired = true; }));
  CHECK(refused([](Op& op) { op.w.data += 8; }));
  CHECK(refused([](Op& op) { op.w.cols = 0; }));
  CHECK(refused([](Op& op) { op.w.rows = -1; }));
  CHECK(refused([](Op& op) { op.rows = -1; }));
  CHECK(refused([](Op& op) { op.stride = 15; }));
  CHECK(refused([](Op& op) { op.y = nullptr; }));
  CHECK(refused([](Op& op) { op.x.bf16 = nullptr; }));
  CHECK(refused([](Op& op) { op.x.bf16 += 4; }));
  CHECK(refused([](Op& op) { op.x.sums = nullptr; }));
  CHECK(refused([](Op& op) { op.x.f32 = op.y; }));
  CHECK(result([](Op& op) { op.rows = 0; }) == cudaSuccess);
  CHECK(result([](Op& op) { op.w.rows = 0; }) == cudaSuccess);
  stream.wait();
  for (const float f : y.values()) CHECK(std::isnan(f));
}

TEST_CASE("matmul and SwiGlu: what it does not do is refused, nothing is done at once") {
  const ProductCase c(SourceType::kBf16, {1, 16, 64}, true, 42);
  const ProductRun run(c);
  const RowsCase out(1, 8);
  const TestStream stream;
  using Op = kernels::MatMulSwiGlu;
  const Op good{run.w, run.rows(), 1, out.out(true, true)};
  const auto result = [&](auto change) {
    Op op = good;
    change(op);
    return cuda::enqueue(op, cuda::Context{.stream = stream.get()});
  };
  const auto refused = [&](auto change) { return result(change) == cudaErrorInvalidValue; };
  kernels::QuantBlock block;
  CHECK(refused([](Op& op) { op.w.paired = false; }));
  CHECK(refused([](Op& op) { op.w.rows = 8; }));
  CHECK(refused([](Op& op) { op.y = {}; }));
  CHECK(refused([](Op& op) { op.y.sums = nullptr; }));
  CHECK(refused([](Op& op) { op.y.bf16 += 4; }));
  CHECK(refused([&](Op& op) { op.y.q = &block; }));
  CHECK(result([](Op& op) { op.rows = 0; }) == cudaSuccess);
  stream.wait();
  for (const float f : out.f32.values()) CHECK(std::isnan(f));
}

}  // namespace
}  // namespace headrace::simt

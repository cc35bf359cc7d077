#include <doctest/doctest.h>

#include "kernels/cuda/dequantize.h"
#include "tests/simt/configurations.h"
#include "tests/simt/matmul_case.h"

namespace headrace::simt {
namespace {

// What the kernel makes of strips [first, first + strips), from NaN.
std::vector<uint16_t> dequantized(const ProductCase& c, int first, int strips) {
  const DeviceBuffer<std::byte> weights(c.weights);
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(c.shape.k));
  const DeviceBuffer<uint16_t> y(
      std::vector<uint16_t>(static_cast<size_t>(16 * strips) * pitch, uint16_t{0x7fc0}));
  cuda::Dequantize op{c.w, first, strips, y.get()};
  op.w.data = weights.get();
  const TestStream stream;
  REQUIRE(cuda::enqueue(op, {.stream = stream.get()}) == cudaSuccess);
  stream.wait();
  return y.values();
}

TEST_CASE("dequantize: every type, paired and not, whole and in parts, is the reference's") {
  struct Case {
    int n, k, first, strips;
    bool paired;
  };
  constexpr Case kCases[] = {{48, 64, 0, 3, false},  {33, 160, 0, 3, false}, {80, 96, 2, 2, false},
                             {64, 1088, 1, 1, true}, {80, 64, 0, 5, true},   {96, 96, 3, 3, true}};
  for (const SourceType type : kSourceTypes) {
    for (size_t i = 0; i < std::size(kCases); i++) {
      const Case& one = kCases[i];
      const ProductCase c(type, {1, one.n, one.k}, one.paired, 51);
      std::vector<uint16_t> truth(static_cast<size_t>(16 * one.strips) *
                                  static_cast<size_t>(kernels::bf16_pitch(one.k)));
      reference(cuda::Dequantize{c.w, one.first, one.strips, truth.data()});
      some_configurations(i, static_cast<size_t>(type), [&] {
        CAPTURE(static_cast<int>(type));
        CAPTURE(i);
        const std::vector<uint16_t> got = dequantized(c, one.first, one.strips);
        for (size_t e = 0; e < truth.size(); e++)
          REQUIRE(kernels::bf16_to_float(got[e]) == kernels::bf16_to_float(truth[e]));
      });
    }
  }
}

TEST_CASE("dequantize: the reference's rows are the matrix's, rounded to bf16") {
  const ProductCase c(SourceType::kQ4_1, {1, 48, 64}, true, 52);
  std::vector<uint16_t> y(32 * 64);
  reference(cuda::Dequantize{c.w, 1, 2, y.data()});
  for (int r = 0; r < 32; r++) {
    const int row = r < 16 ? 8 + r : 24 + 8 + (r - 16);
    for (int k = 0; k < 64; k++) {
      const float w = kernels::weight_at(c.w, row, k);
      const float got = kernels::bf16_to_float(y[static_cast<size_t>(r * 64 + k)]);
      CHECK(std::fabs(got - w) <= std::ldexp(std::fabs(w), -8));
    }
  }
}

TEST_CASE("dequantize: what it does not do is refused, nothing is done at once") {
  const ProductCase c(SourceType::kQ8_0, {1, 32, 64}, false, 53);
  const ProductRun run(c);
  const DeviceBuffer<uint16_t> y(std::vector<uint16_t>(32 * 64, uint16_t{0x7fc0}));
  const TestStream stream;
  using Op = cuda::Dequantize;
  const auto result = [&](auto change) {
    Op op{run.w, 0, 2, y.get()};
    change(op);
    return cuda::enqueue(op, cuda::Context{.stream = stream.get()});
  };
  const auto refused = [&](auto change) { return result(change) == cudaErrorInvalidValue; };
  CHECK(refused([](Op& op) { op.w.tiling = kernels::Tiling::kLanes; }));
  CHECK(refused([](Op& op) { op.w.data += 8; }));
  CHECK(refused([](Op& op) { op.w.cols = 0; }));
  CHECK(refused([](Op& op) { op.first = 1; }));
  CHECK(refused([](Op& op) { op.first = -1; }));
  CHECK(refused([](Op& op) { op.strips = -1; }));
  CHECK(refused([](Op& op) { op.y = nullptr; }));
  CHECK(refused([](Op& op) { op.y += 4; }));
  CHECK(result([](Op& op) { op.strips = 0; }) == cudaSuccess);
  stream.wait();
  for (const uint16_t b : y.values()) REQUIRE(b == 0x7fc0);
}

}  // namespace
}  // namespace headrace::simt

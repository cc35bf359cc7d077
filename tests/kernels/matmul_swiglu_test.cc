#include <doctest/doctest.h>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "tests/kernels/weights.h"

namespace headrace::kernels {
namespace {

using namespace testing;

// One output by its definition: the gate is row n, the up projection row ffn + n.
double defined(const Matrix& w, const float* x, int n) {
  double a = 0;
  double b = 0;
  for (int k = 0; k < w.cols; k++) {
    a += double{weight_at(w, n, k)} * x[k];
    b += double{weight_at(w, w.rows / 2 + n, k)} * x[k];
  }
  return a / (1 + std::exp(-a)) * b;
}

TEST_CASE("a product and SwiGlu in one are silu(gate) times up, for every type") {
  std::mt19937 rng(1);
  constexpr int kRows = 3;
  for (SourceType type : {SourceType::kF32, SourceType::kF16, SourceType::kBf16, SourceType::kQ8_0,
                          SourceType::kQ4_0, SourceType::kQ4_1}) {
    const Weights w(type, 2 * 40, 96, rng);
    const auto x = random_floats(size_t{kRows} * 96, rng);
    Array<float> y(size_t{kRows} * 40);
    Array<uint16_t> halves(size_t{kRows} * 64);
    Array<float> sums(size_t{kRows} * 2);
    reference(MatMulSwiGlu{w.matrix,
                           {.f32 = x.data()},
                           kRows,
                           {.f32 = y.data(), .bf16 = halves.data(), .sums = sums.data()}});
    CHECK(y.guarded());
    CHECK(halves.guarded());
    CHECK(sums.guarded());
    for (size_t r = 0; r < kRows; r++) {
      double sum = 0;
      for (size_t n = 0; n < 64; n++) {
        const float half = bf16_to_float(halves[64 * r + n]);
        if (n >= 40) {
          CHECK(half == 0);
          continue;
        }
        const double truth = defined(w.matrix, x.data() + 96 * r, static_cast<int>(n));
        CHECK(double{y[40 * r + n]} == doctest::Approx(truth).epsilon(1e-5));
        CHECK(half == bf16_to_float(float_to_bf16(y[40 * r + n])));
        if (n < 32) sum += double{half};
      }
      CHECK(double{sums[2 * r]} == doctest::Approx(sum).epsilon(1e-6));
    }
  }
}

TEST_CASE("on every path the bits of a product and then SwiGlu") {
  std::mt19937 rng(3);
  struct Case {
    SourceType type;
    int ffn, k;
  };
  for (const Case c :
       {Case{SourceType::kQ4_0, 96, 576},
        {SourceType::kQ4_1, 1536, 64},
        {SourceType::kQ8_0, 32, 96},
        {SourceType::kF32, 32, 33},
        {SourceType::kBf16, 64, 40},
        {SourceType::kQ4_0, 160, 20000}}) {  // one tile fills what stays in the cache
    const auto source = random_source(c.type, 2 * c.ffn, c.k, rng);
    const Weights plain(c.type, 2 * c.ffn, c.k, source),
        paired(c.type, 2 * c.ffn, c.k, source, true);
    for (const int rows : {1, 2, 5, 8, 16, 17, 40}) {
      if (c.k > 1000 && rows != 2 && rows != 17) continue;
      CAPTURE(c.ffn);
      CAPTURE(rows);
      const auto n = static_cast<size_t>(rows * c.ffn);
      const auto x = random_floats(static_cast<size_t>(rows * c.k), rng);
      const bool blocks = quantized(plain.matrix.type);
      Array<QuantBlock> q(blocks ? x.size() / kGroup : 0);
      if (blocks) reference(QuantizeRows{x.data(), rows, c.k, q.data()});
      const Rows in{.f32 = blocks ? nullptr : x.data(), .q = blocks ? q.data() : nullptr};
      const auto portable = make_cpu_device(CpuPath::kPortable, 1);
      Array<float> halves(2 * n), want(n);
      Array<QuantBlock> want_q(n / kGroup);
      portable->run(MatMul{plain.matrix, in, rows, halves.data(), 2 * c.ffn, false});
      portable->run(SwiGlu{halves.data(), rows, c.ffn, {.f32 = want.data(), .q = want_q.data()}});
      for (const CpuPath path : paths()) {
        for (const int threads : {1, 3}) {
          CAPTURE(name(path));
          Array<float> y(n);
          Array<QuantBlock> y_q(n / kGroup);
          const auto device = make_cpu_device(path, threads);
          device->run(MatMulSwiGlu{paired.matrix, in, rows, {.f32 = y.data(), .q = y_q.data()}});
          CHECK(y.guarded());
          CHECK(y_q.guarded());
          CHECK(same_bits(y, want));
          CHECK(same_bits(y_q, want_q));
        }
      }
    }
  }
}

TEST_CASE("cost: the halves cross no bus") {
  std::mt19937 rng(2);
  const Weights w(SourceType::kQ8_0, 2 * 32, 64, rng);
  const float any = 0;
  float y = 0;
  const Cost c = cost(MatMulSwiGlu{w.matrix, {.f32 = &any}, 3, {.f32 = &y}});
  CHECK(c.weight_bytes == 64 * 64 / 32 * 34);
  CHECK(c.activation_bytes == 3 * (64 * 4 + 32 * 4));
  CHECK(c.flops == 3 * (2 * 64 * 64 + 11 * 32));
  CHECK(c.kv_bytes == 0);
}

}  // namespace
}  // namespace headrace::kernels

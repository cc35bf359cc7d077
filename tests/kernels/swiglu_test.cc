#include <doctest/doctest.h>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

struct Case {
  int rows, ffn;
};

}  // namespace

TEST_CASE("swiglu: reference and all paths agree, for whole and odd widths") {
  std::mt19937 rng(1);
  for (const Case c : {Case{1, 1}, {3, 7}, {2, 16}, {5, 47}, {1, 1536}, {9, 4096}, {33, 96}}) {
    CAPTURE(c.rows);
    CAPTURE(c.ffn);
    const auto n = static_cast<size_t>(c.rows * c.ffn);
    const auto x = random_floats(2 * n, rng, 5);
    const bool blocks = c.ffn % 32 == 0;
    SwiGlu op{x.data(), c.rows, c.ffn, {}};
    Array<float> truth(n);
    op.y = {truth.data(), nullptr};
    reference(op);
    std::unique_ptr<Array<float>> first;
    std::unique_ptr<Array<QuantBlock>> first_q;
    for (CpuPath path : paths()) {
      for (int threads : {1, 3}) {
        CAPTURE(name(path));
        auto device = make_cpu_device(path, threads);
        auto y = std::make_unique<Array<float>>(n);
        auto q = std::make_unique<Array<QuantBlock>>(blocks ? n / 32 : 0);
        op.y = {y->data(), blocks ? q->data() : nullptr};
        device->run(op);
        CHECK(y->guarded());
        CHECK(q->guarded());
        CHECK(close(*y, truth, 1e-12, 1e-4));
        if (blocks) {
          CHECK(error_of(dequantized({q->data(), q->size()}), {truth.data(), n}).nmse < 3e-4);
        }
        if (!first) {
          first = std::move(y);
          first_q = std::move(q);
        } else {
          CHECK(same_bits(*y, *first));
          CHECK(same_bits(*q, *first_q));
        }
      }
    }
  }
}

TEST_CASE("swiglu: gates far out give the gate or zero, not NaN") {
  for (CpuPath path : paths()) {
    auto device = make_cpu_device(path, 1);
    Array<float> x(8), y(4);
    const float gates[4] = {1e4f, -1e4f, 3e38f, -90};
    for (size_t i = 0; i < 4; ++i) {
      x[i] = gates[i];
      x[4 + i] = 1;
    }
    device->run(SwiGlu{x.data(), 1, 4, {y.data(), nullptr}});
    CHECK(y[0] == 1e4f);
    CHECK(y[1] == 0);
    CHECK(y[2] == 3e38f);
    CHECK(std::fabs(y[3]) < 1e-36f);
  }
}

#include <doctest/doctest.h>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

struct Case {
  int rows, dim;
};

}  // namespace

TEST_CASE("rms_norm: reference and all paths agree, for whole and odd widths") {
  std::mt19937 rng(1);
  for (const Case c : {Case{1, 1}, {3, 7}, {2, 16}, {5, 31}, {1, 576}, {70, 64}, {2, 4099}}) {
    CAPTURE(c.rows);
    CAPTURE(c.dim);
    const auto n = static_cast<size_t>(c.rows * c.dim);
    auto x = random_floats(n, rng);
    x[0] = 1000;  // an outlier
    const auto gain = random_floats(static_cast<size_t>(c.dim), rng);
    const bool blocks = c.dim % 32 == 0;
    RmsNorm op{x.data(), gain.data(), c.rows, c.dim, 1e-5f, {}};
    Array<float> truth(n);
    Array<QuantBlock> truth_q(blocks ? n / 32 : 0);
    op.y = {truth.data(), blocks ? truth_q.data() : nullptr};
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
        CHECK(close(*y, truth, 1e-12, 1e-5));
        if (blocks) {
          CHECK(error_of(dequantized({q->data(), q->size()}),
                         dequantized({truth_q.data(), truth_q.size()}))
                    .nmse < 1e-5);
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

TEST_CASE("rms_norm: blocks alone equal blocks beside floats, in place equals out of place") {
  std::mt19937 rng(2);
  for (CpuPath path : paths()) {
    auto device = make_cpu_device(path, 2);
    const auto gain = random_floats(96, rng);
    const auto x = random_floats(2 * 96, rng);
    Array<float> y(2 * 96), in_place(2 * 96);
    Array<QuantBlock> q(6), alone(6);
    device->run(RmsNorm{x.data(), gain.data(), 2, 96, 1e-6f, {y.data(), q.data()}});
    device->run(RmsNorm{x.data(), gain.data(), 2, 96, 1e-6f, {nullptr, alone.data()}});
    CHECK(same_bits(q, alone));
    std::copy_n(x.data(), 2 * 96, in_place.data());
    device->run(RmsNorm{in_place.data(), gain.data(), 2, 96, 1e-6f, {in_place.data(), nullptr}});
    CHECK(same_bits(in_place, y));
  }
}

TEST_CASE("rms_norm: zeros stay finite, NaN spreads over its row only") {
  for (CpuPath path : paths()) {
    auto device = make_cpu_device(path, 1);
    Array<float> x(64, 0.0f), gain(32, 1.0f), y(64);
    x[40] = kNan;
    Array<QuantBlock> q(2);
    device->run(RmsNorm{x.data(), gain.data(), 2, 32, 1e-5f, {y.data(), q.data()}});
    CHECK(y[0] == 0);
    CHECK(q[0].scale == 0);
    CHECK(std::isnan(y[32]));
    CHECK(std::isnan(q[1].scale));
  }
}

TEST_CASE("rms_norm: cost counts what crosses memory") {
  float* some = nullptr;
  const Cost c = cost(RmsNorm{some, some, 10, 64, 0, {reinterpret_cast<float*>(64), nullptr}});
  CHECK(c.activation_bytes == 2 * 10 * 64 * 4);
  CHECK(c.weight_bytes == 64 * 4);
  CHECK(c.kv_bytes == 0);
}

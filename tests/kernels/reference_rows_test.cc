#include "kernels/reference_rows.h"

#include <doctest/doctest.h>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

TEST_CASE("rows go to every destination that is set") {
  std::mt19937 rng(1);
  const auto x = random_floats(128, rng);
  Array<float> y(128);
  Array<QuantBlock> q(4);
  deliver_rows(x.data(), 2, 64, {y.data(), q.data()});
  CHECK(same_bits(x, y));
  CHECK(q.guarded());
  CHECK(error_of(dequantized({q.data(), 4}), {x.data(), 128}).nmse < 1e-4);
  deliver_rows(x.data(), 2, 64, {});
  CHECK(rows_bytes({}, 2, 64) == 0);
  CHECK(rows_bytes({y.data(), nullptr}, 2, 64) == 512);
  CHECK(rows_bytes({y.data(), q.data()}, 2, 64) == 512 + 160);
}

TEST_CASE("a product reads sums of 32 for weights with a minimum alone") {
  const uint16_t half = 0;
  const float x = 0;
  const Matrix plain{WeightType::kW4, 8, 96, nullptr};
  const Matrix minima{WeightType::kW4Min, 8, 96, nullptr};
  CHECK(product_row_bytes({.bf16 = &half}, plain) == 2 * 128);
  CHECK(product_row_bytes({.bf16 = &half}, minima) == 2 * 128 + 4 * 4);
  CHECK(product_row_bytes({.f32 = &x}, minima) == 4 * 96);
}

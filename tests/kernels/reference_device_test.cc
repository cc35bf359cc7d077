#include "kernels/reference_device.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

TEST_CASE("the reference device runs the references and accounts for them") {
  auto device = make_reference_device();
  CHECK(device->name() == "reference");
  CHECK(device->activation(WeightType::kW4) == Activation::kF32);
  CHECK(device->kv_type() == KvType::kF32);

  std::mt19937 rng(1);
  const auto x = random_floats(64, rng), gain = random_floats(32, rng);
  Array<float> y(64), truth(64);
  RmsNorm op{x.data(), gain.data(), 2, 32, 1e-5f, {truth.data(), nullptr}};
  reference(op);
  op.y.f32 = y.data();
  device->run(op);
  CHECK(same_bits(y, truth));
  const auto accounts = device->take_accounts();
  REQUIRE(accounts.size() == 1);
  CHECK(std::string(accounts[0].op) == "rms_norm");
  CHECK(accounts[0].cost == cost(op));
}

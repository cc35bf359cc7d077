#include "kernels/cpu_device.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

TEST_CASE("a device says what it is and accounts for what it ran") {
  auto device = make_cpu_device(CpuPath::kPortable, 2);
  CHECK(device->name() == "cpu portable, 2 threads");
  CHECK(make_cpu_device(CpuPath::kPortable, 1)->name() == "cpu portable, 1 thread");
  CHECK(device->activation(WeightType::kW4Min) == Activation::kBlocks);
  CHECK(device->activation(WeightType::kF16) == Activation::kF32);
  CHECK(device->host_visible());
  CHECK(device->kv_type() == KvType::kF16);
  CHECK(device->take_accounts().empty());

  Array<float> x(64, 1.0f), gain(64, 1.0f), y(64);
  const RmsNorm op{x.data(), gain.data(), 1, 64, 1e-5f, {y.data(), nullptr}};
  device->run(op);
  device->run(op);
  const auto accounts = device->take_accounts();
  REQUIRE(accounts.size() == 1);
  CHECK(std::string(accounts[0].op) == "rms_norm");
  CHECK(accounts[0].runs == 2);
  CHECK(accounts[0].cost.bytes() == 2 * cost(op).bytes());
  CHECK(accounts[0].seconds > 0);
  CHECK(device->take_accounts().empty());
}

TEST_CASE("threads are counted from the process's affinity") {
  CHECK(usable_threads() >= 1);
  const auto expected = std::to_string(usable_threads()) + " thread";
  CHECK(make_cpu_device(CpuPath::kPortable, 0)->name().find(expected) != std::string::npos);
}

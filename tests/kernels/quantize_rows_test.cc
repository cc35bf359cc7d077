#include <doctest/doctest.h>

#include "kernels/cost.h"
#include "tests/kernels/harness.h"

namespace headrace::kernels {
namespace {

using namespace testing;

Array<QuantBlock> on(Device& device, const Array<float>& x, int rows, int dim) {
  Array<QuantBlock> y(x.size() / 32);
  device.run(QuantizeRows{x.data(), rows, dim, y.data()});
  CHECK(y.guarded());
  return y;
}

TEST_CASE("all paths give the bits of the reference") {
  std::mt19937 rng(1);
  for (int rows : {1, 2, 17}) {
    for (int dim : {32, 64, 576}) {
      Array<float> x = random_floats(static_cast<size_t>(rows * dim), rng, 3);
      x[0] *= 1000;  // an outlier
      for (int i = 0; i < 32; i++) x[static_cast<size_t>(i) + x.size() - 32] = 0;
      const auto truth = on(*make_reference_device(), x, rows, dim);
      for (CpuPath path : paths()) {
        for (int threads : {1, 3}) {
          CAPTURE(name(path));
          CHECK(same_bits(on(*make_cpu_device(path, threads), x, rows, dim), truth));
        }
      }
      // The definition, independently: half a step off at most, and the largest is 127.
      for (size_t b = 0; b < truth.size(); b++) {
        const QuantBlock& block = truth[b];
        int32_t sum = 0, largest = 0;
        for (size_t i = 0; i < 32; i++) {
          sum += block.q[i];
          largest = std::max(largest, std::abs(int{block.q[i]}));
          const double back = double{block.scale} * block.q[i];
          CHECK(std::fabs(back - double{x[32 * b + i]}) <= 0.5001 * double{block.scale});
        }
        CHECK(sum == block.sum);
        CHECK(largest == (b + 1 == truth.size() ? 0 : 127));
      }
    }
  }
}

TEST_CASE("ties round to even") {
  Array<float> x(32, 0.0f);
  const float values[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127};
  std::copy(std::begin(values), std::end(values), x.data());
  const int truth[] = {127, 0, 2, 2, 0, -2, -2, -127};
  for (CpuPath path : paths()) {
    const auto y = on(*make_cpu_device(path, 1), x, 1, 32);
    for (size_t i = 0; i < 8; i++) CHECK(y[0].q[i] == truth[i]);
    CHECK(y[0].scale == 1);
    CHECK(y[0].sum == 0);
  }
}

TEST_CASE("values at the ends of the range") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  for (float v : {0.0f, -0.0f, tiny, 1e-38f, 0.99e-30f, 1e-30f, 1e-20f, 1e20f, huge, -huge}) {
    Array<float> x(64, v);
    x[40] = -v;
    const auto truth = on(*make_reference_device(), x, 2, 32);
    CHECK(truth[0].scale == (std::fabs(v) < kQuantZero ? 0 : std::fabs(v) / 127));
    CHECK(std::abs(truth[0].q[5]) == (std::fabs(v) < kQuantZero ? 0 : 127));
    for (CpuPath path : paths()) CHECK(same_bits(on(*make_cpu_device(path, 1), x, 2, 32), truth));
  }
}

TEST_CASE("a block that is not finite says so in its scale and has no quants") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float bad : {kNan, -kNan, kInf, -kInf}) {
    for (size_t at : {size_t{0}, size_t{15}, size_t{16}, size_t{31}}) {
      Array<float> x(96, 2.0f);
      x[32 + at] = bad;
      std::vector<std::unique_ptr<Device>> devices;
      devices.push_back(make_reference_device());
      for (CpuPath path : paths()) devices.push_back(make_cpu_device(path, 1));
      for (auto& device : devices) {
        const auto y = on(*device, x, 1, 96);
        CAPTURE(device->name());
        CHECK_FALSE(std::isfinite(y[1].scale));
        CHECK(y[1].sum == 0);
        for (int8_t q : y[1].q) CHECK(q == 0);
        CHECK(y[0].q[3] == 127);
        CHECK(y[2].q[3] == 127);
      }
    }
  }
}

TEST_CASE("cost") {
  const Cost c = cost(QuantizeRows{nullptr, 2, 64, nullptr});
  CHECK(c.activation_bytes == 2 * 64 * 4 + 4 * 40);
  CHECK(c.weight_bytes == 0);
  CHECK(c.flops == 3 * 128);
}

}  // namespace
}  // namespace headrace::kernels

#include <doctest/doctest.h>

#include "kernels/cuda/rows.h"
#include "tests/simt/configurations.h"
#include "tests/simt/rows_case.h"

namespace headrace::simt {
namespace {

TEST_CASE("gather rows: rows in any order, several times, or none at all") {
  each_configuration([] {
    for (const int32_t dim : {4, 124, 128, 1020, 1024, 1028, 2052}) {
      CAPTURE(dim);
      const auto width = static_cast<size_t>(dim);
      std::vector<float> x = random_floats(5 * width, 1);
      const std::vector<int32_t> index = {3, -1, 0, 3, 4, -7, 1};
      const auto rows = static_cast<int32_t>(index.size());
      std::vector<float> expected(index.size() * width);
      kernels::reference(kernels::GatherRows{x.data(), index.data(), rows, dim, expected.data()});
      // Row 2 is nobody's: poison.
      std::fill_n(x.begin() + static_cast<long>(2 * width), width, NAN);
      const DeviceBuffer<float> device_x(x);
      const DeviceBuffer<int32_t> device_index(index);
      const DeviceBuffer<float> y(std::vector<float>(expected.size(), NAN));
      const TestStream stream;
      REQUIRE(
          cuda::enqueue(kernels::GatherRows{device_x.get(), device_index.get(), rows, dim, y.get()},
                        cuda::Context{.stream = stream.get()}) == cudaSuccess);
      stream.wait();
      CHECK(y.values() == expected);
    }
  });
}

TEST_CASE("gather rows: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<float> x(std::vector<float>(64, 1.0f));
  const DeviceBuffer<float> y(std::vector<float>(64, 2.0f));
  const DeviceBuffer<int32_t> index({0});
  const TestStream stream;
  const auto enqueue = [&](const float* from, int32_t rows, int32_t dim, float* to) {
    return cuda::enqueue(kernels::GatherRows{from, index.get(), rows, dim, to},
                         cuda::Context{.stream = stream.get()});
  };
  CHECK(enqueue(x.get(), 1, 62, y.get()) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), -1, 64, y.get()) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get() + 1, 1, 32, y.get()) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 1, 32, y.get() + 1) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 0x7fffffff, 2048, y.get()) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 0, 64, y.get()) == cudaSuccess);
  CHECK(enqueue(x.get(), 1, 0, y.get()) == cudaSuccess);
  stream.wait();
  CHECK(y.values() == std::vector<float>(64, 2.0f));
}

}  // namespace
}  // namespace headrace::simt

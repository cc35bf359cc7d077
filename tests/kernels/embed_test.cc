#include <doctest/doctest.h>

#include "tests/kernels/weights.h"

namespace headrace::kernels {
namespace {

using namespace testing;

TEST_CASE("rows of every packed type, on every device, are the weights exactly") {
  std::mt19937 rng(1);
  for (SourceType type : {SourceType::kF32, SourceType::kF16, SourceType::kBf16, SourceType::kQ8_0,
                          SourceType::kQ4_0, SourceType::kQ4_1}) {
    for (int cols : {32, 576, 33}) {
      if (cols % 32 != 0 && quantized(packed_type(type))) continue;
      const Weights table(type, 77, cols, rng);
      std::vector<int32_t> ids = {0, 76, 31, 32, 5, 5, 64, 1, 2, 3, 4, 75, 70, 33, 34, 35, 36, 9};
      const auto rows = static_cast<int32_t>(ids.size());
      std::vector<std::unique_ptr<Device>> devices;
      devices.push_back(make_reference_device());
      for (CpuPath path : paths()) {
        devices.push_back(make_cpu_device(path, 1));
        devices.push_back(make_cpu_device(path, 3));
      }
      for (auto& device : devices) {
        CAPTURE(device->name());
        Array<float> y(ids.size() * static_cast<size_t>(cols));
        device->run(Embed{table.matrix, ids.data(), rows, y.data()});
        CHECK(y.guarded());
        bool equal = true;
        for (int r = 0; r < rows; r++) {
          for (int c = 0; c < cols; c++)
            equal &= y[static_cast<size_t>(r * cols + c)] ==
                     weight_at(table.matrix, ids[static_cast<size_t>(r)], c);
        }
        CHECK(equal);
      }
    }
  }
}

TEST_CASE("cost counts only the rows that are read") {
  std::mt19937 rng(2);
  const Weights table(SourceType::kQ8_0, 64, 64, rng);
  const int32_t ids[] = {1, 2, 3};
  const Cost c = cost(Embed{table.matrix, ids, 3, nullptr});
  CHECK(c.weight_bytes == 3 * 2 * 34);
  CHECK(c.activation_bytes == 3 * 64 * 4);
  Matrix fragments = table.matrix;  // the same bytes a row, in tiles of fewer rows
  fragments.tiling = Tiling::kFragments;
  CHECK(cost(Embed{fragments, ids, 3, nullptr}) == c);
}

}  // namespace
}  // namespace headrace::kernels

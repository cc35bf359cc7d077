#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/rows.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/fragments_case.h"

namespace headrace::simt {
namespace {

using kernels::WeightType;
constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBf16,
                                 WeightType::kW8,  WeightType::kW4,  WeightType::kW4Min};

// Around a group, a unit, a block; `columns` is a multiple of 32 for quantized types.
struct Shape {
  int rows;
  int columns;
};
constexpr Shape kShapes[] = {{1, 32}, {15, 64}, {16, 96}, {17, 128}, {3, 1024}, {18, 1056}};
constexpr Shape kFloatShapes[] = {{9, 4}, {17, 28}, {16, 36}, {5, 68}, {3, 1028}};

// Every row, some ids that are none, the first row again.
std::vector<int32_t> ids_of(int rows) {
  std::vector<int32_t> ids;
  for (int32_t r = 0; r < rows; r++) ids.push_back(r);
  ids.insert(ids.end(), {-1, rows, 0, INT32_MIN, INT32_MAX});
  return ids;
}

std::vector<float> embed(const FragmentsCase& table, const std::vector<int32_t>& ids) {
  const DeviceBuffer<std::byte> data(table.bytes);
  const DeviceBuffer<int32_t> device_ids(ids);
  const DeviceBuffer<float> y(
      std::vector<float>(ids.size() * static_cast<size_t>(table.columns), NAN));
  const TestStream stream;
  const kernels::Embed op{table.matrix(data.get()), device_ids.get(),
                          static_cast<int32_t>(ids.size()), y.get()};
  REQUIRE(cuda::enqueue(op, cuda::Context{.stream = stream.get()}) == cudaSuccess);
  stream.wait();
  return y.values();
}

std::vector<float> expected_rows(const FragmentsCase& table, const std::vector<int32_t>& ids) {
  std::vector<float> y;
  for (const int32_t id : ids) {
    for (int k = 0; k < table.columns; k++) {
      y.push_back(id < 0 || id >= table.rows
                      ? 0.0f
                      : table.values[static_cast<size_t>(id * table.columns + k)]);
    }
  }
  return y;
}

TEST_CASE("embed: every row of tables of every type, exactly") {
  each_configuration([] {
    for (const WeightType type : kTypes) {
      CAPTURE(kernels::name(type));
      for (const Shape& shape : kShapes) {
        CAPTURE(shape.rows);
        CAPTURE(shape.columns);
        const FragmentsCase table(type, shape.rows, shape.columns, 1);
        const std::vector<int32_t> ids = ids_of(shape.rows);
        CHECK(embed(table, ids) == expected_rows(table, ids));
      }
      if (kernels::quantized(type)) continue;
      for (const Shape& shape : kFloatShapes) {
        CAPTURE(shape.columns);
        const FragmentsCase table(type, shape.rows, shape.columns, 2);
        const std::vector<int32_t> ids = ids_of(shape.rows);
        CHECK(embed(table, ids) == expected_rows(table, ids));
      }
    }
  });
}

TEST_CASE("embed: what the reference reads of the same table is the same") {
  for (const WeightType type : kTypes) {
    CAPTURE(kernels::name(type));
    const FragmentsCase table(type, 19, 96, 5);
    const std::vector<int32_t> ids = {18, -1, 0, 7, 8, 15, 16};
    std::vector<float> y(ids.size() * 96, NAN);
    kernels::reference(kernels::Embed{table.matrix(table.bytes.data()), ids.data(),
                                      static_cast<int32_t>(ids.size()), y.data()});
    CHECK(embed(table, ids) == y);
  }
}

TEST_CASE("embed: two neighbouring words of a table exchanged are seen") {
  for (const WeightType type : kTypes) {
    FragmentsCase table(type, 16, 64, 3);
    std::swap_ranges(table.bytes.begin(), table.bytes.begin() + 4, table.bytes.begin() + 4);
    CHECK(embed(table, ids_of(16)) != expected_rows(table, ids_of(16)));
  }
}

TEST_CASE("embed: what it does not do is refused, nothing is done at once") {
  const FragmentsCase table(WeightType::kF32, 16, 64, 4);
  const DeviceBuffer<std::byte> data(table.bytes);
  const DeviceBuffer<int32_t> ids({0});
  const DeviceBuffer<float> y(std::vector<float>(64, 2.0f));
  const TestStream stream;
  const kernels::Embed good{table.matrix(data.get()), ids.get(), 1, y.get()};
  const auto enqueue = [&](auto change) {
    kernels::Embed op = good;
    change(op);
    return cuda::enqueue(op, cuda::Context{.stream = stream.get()});
  };
  using Op = kernels::Embed;
  CHECK(enqueue([](Op& op) { op.table.tiling = kernels::Tiling::kLanes; }) ==
        cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.table.paired = true; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.table.cols = 62; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.table.data += 4; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.y += 1; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.rows = -1; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.rows = 0; }) == cudaSuccess);
  CHECK(enqueue([](Op& op) { op.table.cols = 0; }) == cudaSuccess);
  stream.wait();
  CHECK(y.values() == std::vector<float>(64, 2.0f));
}

}  // namespace
}  // namespace headrace::simt

#include <doctest/doctest.h>

#include "kernels/cuda/rows.h"
#include "tests/simt/fragments_case.h"
#include "tests/simt/hooks/moves.h"
#include "tests/simt/rows_case.h"

namespace headrace::simt {
namespace {

// The kernel's own lines, and those it shares with other kernels of rows.
void check_row_lines(const Accesses& accesses, const char* file) {
  Accesses own;
  Accesses shared;
  for (const LineUse& use : accesses.lines) {
    (use.line.starts_with("row_values.h:") ? shared : own).lines.push_back(use);
  }
  check_lines(own, file);
  if (!shared.lines.empty()) check_lines(shared, "row_values.h:");
}

template <class Op>
Accesses run(const Op& op) {
  return record_once(
      [&](cudaStream_t stream) { return cuda::enqueue(op, cuda::Context{.stream = stream}); });
}

TEST_CASE("rms norm moves what it costs, in whole sectors, without bank conflicts") {
  for (const size_t dim : {768, 4096, 12288}) {
    const DeviceBuffer<float> x(random_floats(4 * dim, 1));
    const DeviceBuffer<float> gain(random_floats(dim, 2));
    const RowsCase out(4, dim);
    for (const bool floats : {false, true}) {
      const kernels::RmsNorm op{
          x.get(), gain.get(), 4, static_cast<int32_t>(dim), 1e-5f, out.out(floats, !floats)};
      const Accesses accesses = run(op);
      check_moves(accesses, {.cached_weights = {gain.get()}}, kernels::cost(op));
      check_row_lines(accesses, "rms_norm.cu:");
    }
  }
}

TEST_CASE("swiglu moves what it costs, in whole sectors") {
  const DeviceBuffer<float> x(random_floats(size_t{2} * 3 * 1408, 1));
  const RowsCase out(3, 1408);
  for (const bool floats : {false, true}) {
    const kernels::SwiGlu op{x.get(), 3, 1408, out.out(floats, !floats)};
    const Accesses accesses = run(op);
    check_moves(accesses, {}, kernels::cost(op));
    check_row_lines(accesses, "swiglu.cu:");
  }
}

TEST_CASE("gather rows moves what it costs, in whole sectors") {
  const DeviceBuffer<float> x(random_floats(size_t{5} * 1024, 1));
  const DeviceBuffer<int32_t> index({4, 0, 2});
  const DeviceBuffer<float> y(std::vector<float>(size_t{3} * 1024, NAN));
  const kernels::GatherRows op{x.get(), index.get(), 3, 1024, y.get()};
  const Accesses accesses = run(op);
  check_moves(accesses, {}, kernels::cost(op));
  check_row_lines(accesses, "gather_rows.cu:");
}

TEST_CASE("embed moves what it costs; rows of a strip share its sectors") {
  using kernels::WeightType;
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBf16,
                                WeightType::kW8, WeightType::kW4, WeightType::kW4Min}) {
    CAPTURE(kernels::name(type));
    const FragmentsCase table(type, 40, 1024, 1);
    const DeviceBuffer<std::byte> data(table.bytes);
    const DeviceBuffer<int32_t> ids({3, 17, 39});
    const DeviceBuffer<float> y(std::vector<float>(size_t{3} * 1024, NAN));
    const kernels::Embed op{table.matrix(data.get()), ids.get(), 3, y.get()};
    const Accesses accesses = run(op);
    check_moves(accesses, {.weights = {data.get()}}, kernels::cost(op));
    // A token's row is every other word of its sectors, and every sixteenth scale.
    CHECK(accesses.of(data.get()).read.distinct_sectors * 32 <= 6 * kernels::cost(op).weight_bytes);
    for (const LineUse& use : accesses.lines) {
      if (use.write) CHECK(use.units == use.least);
    }
  }
}

}  // namespace
}  // namespace headrace::simt

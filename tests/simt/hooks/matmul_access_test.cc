#include <doctest/doctest.h>

#include "kernels/cuda/dequantize.h"
#include "tests/simt/hooks/moves.h"
#include "tests/simt/matmul_case.h"

namespace headrace::simt {
namespace {

// Every access takes as few passes over the banks as it can, and as few sectors, but for sums of
// 32, of which a row has one next to another only every 32 columns: written, each is a sector; read
// for weights with a minimum, a lane's two take a sector each row.
void check_matmul_lines(const Accesses& accesses, const void* x_sums, const void* y_sums) {
  uint64_t read = 0;
  uint64_t written = 0;
  CHECK(!accesses.lines.empty());
  for (const LineUse& use : accesses.lines) {
    INFO(describe(use));
    CHECK(use.line.starts_with("matmul_"));
    if (use.shared) {
      CHECK(use.units == use.least);
    } else {
      (use.write ? written : read) += use.units - use.least;
    }
  }
  CHECK(read <= accesses.of(x_sums).read.bytes / 32 * 3);
  CHECK(written <= accesses.of(y_sums).written.bytes / sizeof(float));
}

kernels::MatMul product(const ProductRun& run, const DeviceBuffer<float>& y, bool add) {
  return {run.w, run.rows(), run.shape.m, y.get(), run.shape.n, add};
}

TEST_CASE("matmul, few rows: moves what it costs, each weight once") {
  for (const SourceType type : kSourceTypes) {
    for (const ProductShape& shape : {ProductShape{1, 96, 576}, {8, 64, 2048}, {25, 64, 256}}) {
      const ProductRun run(ProductCase(type, shape, false, 1));
      const DeviceBuffer<float> y(std::vector<float>(ProductCase::count(shape.m, shape.n), 0.0f));
      CAPTURE(static_cast<int>(type));
      CAPTURE(shape.m);
      const kernels::MatMul op = product(run, y, shape.m == 8);
      for (const int processors : {1, 132}) {
        const Accesses accesses = record_once([&](cudaStream_t stream) {
          return cuda::enqueue(op, {.stream = stream, .processors = processors});
        });
        check_moves(accesses, {.weights = {run.weights.get()}}, kernels::cost(op));
        check_matmul_lines(accesses, op.x.sums, nullptr);
      }
    }
  }
}

TEST_CASE("matmul, many rows: weights are read once for each 64 rows, all else once") {
  for (const SourceType type : kSourceTypes) {
    const ProductRun run(ProductCase(type, {130, 128, 256}, false, 2));
    const DeviceBuffer<float> y(std::vector<float>(ProductCase::count(130, 128), 0.0f));
    CAPTURE(static_cast<int>(type));
    const kernels::MatMul op = product(run, y, false);
    const Accesses accesses =
        record_once([&](cudaStream_t stream) { return cuda::enqueue(op, {.stream = stream}); });
    kernels::Cost cost = kernels::cost(op);
    CHECK(moved(accesses, {.cached_weights = {run.weights.get()}}).weight_bytes ==
          cost.weight_bytes);
    cost.weight_bytes *= 3;
    check_moves(accesses, {.weights = {run.weights.get()}}, cost);
    check_matmul_lines(accesses, op.x.sums, nullptr);
  }
}

TEST_CASE(
    "matmul: pieces of K over blocks move their sums through the workspace, in whole sectors") {
  for (const SourceType type : kSourceTypes) {
    const ProductRun run(ProductCase(type, {41, 144, 1024}, false, 4), 132, true);
    const DeviceBuffer<float> y(std::vector<float>(ProductCase::count(41, 144), 0.0f));
    CAPTURE(static_cast<int>(type));
    const kernels::MatMul op = product(run, y, false);
    const Accesses accesses =
        record_once([&](cudaStream_t stream) { return cuda::enqueue(op, run.context(stream)); });
    const BufferUse sums = accesses.of(run.workspace.get());
    CHECK(sums.written.bytes + sums.read.bytes == cuda::spread_bytes(op, 132));
    CHECK(sums.read.distinct_bytes == sums.read.bytes);
    // Moved counts what is read and written once, and a counter for each part.
    kernels::Cost cost = kernels::cost(op);
    cost.activation_bytes += cuda::spread_bytes(op, 132);
    check_moves(accesses, {.weights = {run.weights.get()}}, cost);
    check_matmul_lines(accesses, op.x.sums, nullptr);
  }
}

TEST_CASE("matmul and SwiGlu move what they cost, in whole sectors") {
  for (const SourceType type : kSourceTypes) {
    for (const int m : {8, 72}) {
      const ProductRun run(ProductCase(type, {m, 256, 256}, true, 3));
      const RowsCase out(static_cast<size_t>(m), 128);
      CAPTURE(static_cast<int>(type));
      CAPTURE(m);
      for (const bool floats : {false, true}) {
        const kernels::MatMulSwiGlu op{run.w, run.rows(), m, out.out(floats, !floats)};
        const Accesses accesses =
            record_once([&](cudaStream_t stream) { return cuda::enqueue(op, {.stream = stream}); });
        kernels::Cost cost = kernels::cost(op);
        if (m > 64) cost.weight_bytes *= 2;
        check_moves(accesses, {.weights = {run.weights.get()}}, cost);
        check_matmul_lines(accesses, op.x.sums, op.y.sums);
      }
    }
  }
}

TEST_CASE("dequantize moves what it costs, in whole sectors") {
  for (const SourceType type : kSourceTypes) {
    for (const bool paired : {false, true}) {
      const ProductRun run(ProductCase(type, {1, 96, 576}, paired, 5));
      const DeviceBuffer<uint16_t> y(std::vector<uint16_t>(64 * 576));
      CAPTURE(static_cast<int>(type));
      const cuda::Dequantize op{run.w, 2, 4, y.get()};
      const Accesses accesses =
          record_once([&](cudaStream_t stream) { return cuda::enqueue(op, {.stream = stream}); });
      check_moves(accesses, {.weights = {run.weights.get()}}, cost(op));
      for (const LineUse& use : accesses.lines) {
        INFO(describe(use));
        CHECK(use.units == use.least);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::simt

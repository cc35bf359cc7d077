#include <doctest/doctest.h>

#include "kernels/cuda/roofs.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/hooks/moves.h"

namespace headrace::simt {
namespace {

TEST_CASE("read roof reads what it claims, each sweep anew, in whole sectors") {
  constexpr size_t kBytes = 3 * cuda::kRoofPieceBytes + 512;
  const DeviceBuffer<uint32_t> from(std::vector<uint32_t>(kBytes / 4, 3));
  const DeviceBuffer<uint32_t> sum({0});
  const cuda::ReadRoof op{from.get(), kBytes, 3, sum.get()};
  const Accesses accesses = record_once([&](cudaStream_t stream) {
    return cuda::enqueue(op, cuda::Context{.stream = stream, .processors = 1});
  });
  check_moves(accesses, {.weights = {from.get()}}, cuda::cost(op));
  for (const LineUse& use : accesses.lines) {
    CAPTURE(describe(use));
    CHECK(use.line.starts_with("roofs.cu:"));
    CHECK(use.units == use.least);
  }
}

TEST_CASE("mma roof moves its fragments and sums, however many rounds there are") {
  const DeviceBuffer<uint32_t> in(std::vector<uint32_t>(cuda::kRoofFragmentWords, 0));
  const DeviceBuffer<float> sums(std::vector<float>(cuda::roof_threads(cuda::MmaRoof{}, 1), 1.0f));
  uint64_t read = 0;
  for (const uint32_t rounds : {1u, 4u}) {
    const cuda::MmaRoof op{in.get(), rounds, sums.get()};
    const Accesses accesses = record_once([&](cudaStream_t stream) {
      return cuda::enqueue(op, cuda::Context{.stream = stream, .processors = 1});
    });
    CHECK(accesses.bytes_written == sums.values().size() * sizeof(float));
    if (read != 0) CHECK(accesses.bytes_read == read);
    read = accesses.bytes_read;
  }
}

}  // namespace
}  // namespace headrace::simt

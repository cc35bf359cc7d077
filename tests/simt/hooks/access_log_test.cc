#include "tests/simt/hooks/access_log.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/ops.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/hooks/moves.h"
#include "tests/simt/hooks/planted.h"

namespace headrace::simt {
namespace {

const LineUse& find(const Accesses& accesses, bool shared, bool write) {
  for (const LineUse& use : accesses.lines) {
    if (use.shared == shared && use.write == write) return use;
  }
  FAIL("no such access");
  return accesses.lines.front();
}

TEST_CASE("copy moves what it costs, in whole sectors") {
  const DeviceBuffer<unsigned char> from(std::vector<unsigned char>(100000, 1));
  const DeviceBuffer<unsigned char> to(std::vector<unsigned char>(100000, 0));
  const cuda::CopyBytes op{to.get(), from.get(), 100000};
  const Accesses accesses =
      record_once([&](cudaStream_t stream) { return cuda::enqueue(op, stream); });
  check_moves(accesses, {}, cuda::cost(op));
  check_lines(accesses, "copy.cu:");
  CHECK(accesses.bytes_read == 100000);
  CHECK(accesses.bytes_written == 100000);
}

TEST_CASE("planted: a tile without padding is read 32 times over one bank") {
  const DeviceBuffer<float> from(std::vector<float>(1024, 1.0f));
  const DeviceBuffer<float> to(std::vector<float>(1024, 0.0f));
  for (const bool padded : {true, false}) {
    CAPTURE(padded);
    const Accesses accesses = record_once([&](cudaStream_t stream) {
      return cuda::enqueue_transpose(to.get(), from.get(), padded, stream);
    });
    const LineUse& read = find(accesses, true, false);
    CHECK(read.accesses == 32);
    CHECK(read.units == (padded ? 32 : 32 * 32));
    CHECK(read.least == 32);
    CHECK(find(accesses, true, true).units == 32);
    CHECK(accesses.bytes_read == 4096);
    CHECK(accesses.bytes_written == 4096);
  }
}

TEST_CASE("planted: a strided load moves a sector for every lane") {
  const DeviceBuffer<float> from(std::vector<float>(32 * 8, 1.0f));
  const DeviceBuffer<float> to(std::vector<float>(32, 0.0f));
  for (const unsigned stride : {1, 2, 8}) {
    CAPTURE(stride);
    const Accesses accesses = record_once([&](cudaStream_t stream) {
      return cuda::enqueue_strided(to.get(), from.get(), stride, stream);
    });
    const LineUse& read = find(accesses, false, false);
    CHECK(read.accesses == 1);
    CHECK(read.bytes == 128);
    CHECK(read.units == 4 * stride);
    CHECK(read.least == 4);
    CHECK(find(accesses, false, true).units == 4);
  }
}

TEST_CASE("planted: weights that are read twice cost twice, activations once") {
  const DeviceBuffer<float> from(std::vector<float>(1024, 1.0f));
  const DeviceBuffer<float> to(std::vector<float>(1024, 0.0f));
  const Accesses accesses = record_once([&](cudaStream_t stream) {
    const cudaError_t error = cuda::enqueue_transpose(to.get(), from.get(), true, stream);
    return error ? error : cuda::enqueue_transpose(to.get(), from.get(), true, stream);
  });
  CHECK(moved(accesses, {}) == kernels::Cost{.activation_bytes = 2 * 4096});
  CHECK(moved(accesses, {.weights = {from.get()}}) ==
        kernels::Cost{.weight_bytes = 2 * 4096, .activation_bytes = 4096});
  CHECK(moved(accesses, {.kv = {to.get() + 1023}}) ==
        kernels::Cost{.kv_bytes = 2 * 4096, .activation_bytes = 4096});
  CHECK(moved(accesses, {.cached_weights = {from.get()}}) ==
        kernels::Cost{.weight_bytes = 4096, .activation_bytes = 4096});
  CHECK(accesses.of(to.get() + 1024).base == 0);
}

TEST_CASE("planted: a strided load asks for each sector's bytes in part") {
  const DeviceBuffer<float> from(std::vector<float>(32 * 8, 1.0f));
  const DeviceBuffer<float> to(std::vector<float>(32, 0.0f));
  const Accesses accesses = record_once(
      [&](cudaStream_t stream) { return cuda::enqueue_strided(to.get(), from.get(), 2, stream); });
  const Traffic read = accesses.of(from.get()).read;
  CHECK(read.bytes == 128);
  CHECK(read.distinct_bytes == 128);
  CHECK(read.distinct_sectors == 8);
  CHECK(accesses.of(from.get()).written.bytes == 0);
}

}  // namespace
}  // namespace headrace::simt

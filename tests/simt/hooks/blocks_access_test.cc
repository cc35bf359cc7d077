#include <doctest/doctest.h>

#include "kernels/cuda/blocks.h"
#include "tests/simt/blocks_case.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/hooks/moves.h"

namespace headrace::simt {
namespace {

constexpr size_t kBlockBytes = 40960;

TEST_CASE("block copy moves what it costs, in whole sectors") {
  const DeviceBuffer<std::byte> pool(random_bytes(4 * kBlockBytes, 1));
  const DeviceBuffer<std::byte> staged(std::vector<std::byte>(2 * kBlockBytes));
  const DeviceBuffer<uint32_t> ids({3, 1});
  const DeviceBuffer<uint32_t> sums(std::vector<uint32_t>(6));
  for (const bool to_pool : {false, true}) {
    const cuda::CopyBlocks op{pool.get(),   kBlockBytes, ids.get(), 2,
                              staged.get(), to_pool,     16384,     sums.get()};
    Accesses accesses =
        record_once([&](cudaStream_t stream) { return cuda::enqueue(op, {.stream = stream}); });
    check_moves(accesses, {.kv = {pool.get()}}, cuda::cost(op));
    // Look-ups go where the bytes say: random banks, about three passes each.
    uint64_t passes = 0;
    uint64_t lookups = 0;
    for (const LineUse& use : accesses.lines) {
      if (!use.shared || use.write || use.bytes < kBlockBytes) continue;
      passes += use.units;
      lookups += use.accesses;
    }
    CHECK(lookups > 0);
    CHECK(passes < 4 * lookups);
    std::erase_if(accesses.lines, [](const LineUse& use) { return use.shared && !use.write; });
    check_lines(accesses, "block_copy.cu:");
  }
}

TEST_CASE("zero blocks moves what it costs, in whole sectors") {
  const DeviceBuffer<std::byte> pool(random_bytes(4 * kBlockBytes, 1));
  const uint32_t ids[] = {3, 1};
  const cuda::ZeroBlocks op{pool.get(), kBlockBytes, ids, 2};
  const Accesses accesses =
      record_once([&](cudaStream_t stream) { return cuda::enqueue(op, {.stream = stream}); });
  check_moves(accesses, {.kv = {pool.get()}}, cuda::cost(op));
  check_lines(accesses, "zero_blocks.cu:");
}

}  // namespace
}  // namespace headrace::simt

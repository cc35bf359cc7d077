#include <doctest/doctest.h>

#include "kernels/cuda/blocks.h"
#include "tests/simt/blocks_case.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {
namespace {

constexpr uint32_t kMost = cuda::kZeroBlocksAtOnce;

// `count` of them, the last of the pool first.
void check_zeroed(uint32_t blocks, size_t block_bytes, uint32_t count) {
  CAPTURE(block_bytes);
  std::vector<std::byte> pool = random_bytes(blocks * block_bytes, 1);
  const DeviceBuffer<std::byte> device_pool(pool);
  std::vector<uint32_t> ids(count);
  for (uint32_t i = 0; i < count; i++) ids[i] = blocks - 1 - 2 * i;
  const TestStream stream;
  REQUIRE(cuda::enqueue(cuda::ZeroBlocks{device_pool.get(), block_bytes, ids.data(), count},
                        {.stream = stream.get()}) == cudaSuccess);
  for (const uint32_t id : ids)
    std::fill_n(pool.begin() + static_cast<long>(id * block_bytes), block_bytes, std::byte{0});
  ids.assign(count, 0);  // enqueue was told, it does not look again
  stream.wait();
  CHECK(device_pool.values() == pool);
}

TEST_CASE("zero blocks: those of the list, and no others") {
  each_configuration([] {
    for (const size_t block_bytes : {16, 2112, 4096, 16384, 16400, 33792})
      check_zeroed(5, block_bytes, 2);
  });
}

TEST_CASE("zero blocks: more of them than a launch takes") {
  for (const uint32_t more : {0u, 1u, 17u}) check_zeroed(2 * kMost + 40, 32, kMost + more);
}

TEST_CASE("zero blocks: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<std::byte> pool(random_bytes(256, 2));
  const uint32_t id = 0;
  const TestStream stream;
  const auto enqueue = [&](std::byte* base, size_t block_bytes, uint32_t count) {
    return cuda::enqueue(cuda::ZeroBlocks{base, block_bytes, &id, count}, {.stream = stream.get()});
  };
  CHECK(enqueue(pool.get() + 8, 64, 1) == cudaErrorInvalidValue);
  CHECK(enqueue(pool.get(), 72, 1) == cudaErrorInvalidValue);
  CHECK(enqueue(pool.get(), size_t{1} << 38, 1) == cudaErrorInvalidValue);
  CHECK(enqueue(pool.get(), 64, 0) == cudaSuccess);
  CHECK(enqueue(pool.get(), 0, 1) == cudaSuccess);
  stream.wait();
  CHECK(pool.values() == random_bytes(256, 2));
  const kernels::Cost cost = cuda::cost(cuda::ZeroBlocks{.block_bytes = 64, .count = 3});
  CHECK(cost.kv_bytes == 192);
  CHECK(cost.bytes() == 192);
}

}  // namespace
}  // namespace headrace::simt

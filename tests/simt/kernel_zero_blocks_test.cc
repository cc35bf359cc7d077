#include <doctest/doctest.h>

#include "kernels/cuda/blocks.h"
#include "tests/simt/blocks_case.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {
namespace {

TEST_CASE("zero blocks: those of the list, and no others") {
  each_configuration([] {
    for (const size_t block_bytes : {16, 2112, 4096, 16384, 16400, 33792}) {
      CAPTURE(block_bytes);
      std::vector<std::byte> pool = random_bytes(5 * block_bytes, 1);
      const DeviceBuffer<std::byte> device_pool(pool);
      const DeviceBuffer<uint32_t> ids({4, 1});
      const TestStream stream;
      REQUIRE(cuda::enqueue(cuda::ZeroBlocks{device_pool.get(), block_bytes, ids.get(), 2},
                            {.stream = stream.get()}) == cudaSuccess);
      stream.wait();
      for (const size_t id : {4, 1}) {
        std::fill_n(pool.begin() + static_cast<long>(id * block_bytes), block_bytes, std::byte{0});
      }
      CHECK(device_pool.values() == pool);
    }
  });
}

TEST_CASE("zero blocks: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<std::byte> pool(random_bytes(256, 2));
  const DeviceBuffer<uint32_t> ids({0});
  const TestStream stream;
  const auto enqueue = [&](std::byte* base, size_t block_bytes, uint32_t count) {
    return cuda::enqueue(cuda::ZeroBlocks{base, block_bytes, ids.get(), count},
                         {.stream = stream.get()});
  };
  CHECK(enqueue(pool.get() + 8, 64, 1) == cudaErrorInvalidValue);
  CHECK(enqueue(pool.get(), 72, 1) == cudaErrorInvalidValue);
  CHECK(enqueue(pool.get(), size_t{1} << 32, 0xffffffff) == cudaErrorInvalidValue);
  CHECK(enqueue(pool.get(), 64, 0) == cudaSuccess);
  CHECK(enqueue(pool.get(), 0, 1) == cudaSuccess);
  stream.wait();
  CHECK(pool.values() == random_bytes(256, 2));
  CHECK(cuda::cost(cuda::ZeroBlocks{.block_bytes = 64, .count = 3}).kv_bytes == 192);
}

}  // namespace
}  // namespace headrace::simt

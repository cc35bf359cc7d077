#include <doctest/doctest.h>

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/crc32c.h"
#include "tests/simt/blocks_case.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {
namespace {

struct Shape {
  size_t block_bytes;
  uint32_t slice_bytes;
};
// Around a vector, a block of threads' vectors, a round of four of these; slices that a block is a
// multiple of, and not, and that are longer than it.
constexpr Shape kShapes[] = {{16, 16},      {48, 32},       {4080, 4096},
                             {4096, 4096},  {4112, 4096},   {16384, 16384},
                             {16400, 8192}, {33792, 16400}, {2112, 1 << 20}};
const std::vector<uint32_t> kIds = {5, 0, 3};
constexpr size_t kPoolBlocks = 6;

std::vector<uint32_t> expected_sums(const std::vector<std::byte>& staged, const Shape& shape) {
  std::vector<uint32_t> sums;
  for (size_t block = 0; block < kIds.size(); block++) {
    for (size_t at = 0; at < shape.block_bytes; at += shape.slice_bytes) {
      const size_t n = std::min<size_t>(shape.slice_bytes, shape.block_bytes - at);
      sums.push_back(plain_crc32c(std::span(staged).subspan(block * shape.block_bytes + at, n)));
    }
  }
  return sums;
}

struct Result {
  std::vector<std::byte> pool;
  std::vector<std::byte> staged;
  std::vector<uint32_t> sums;
};

Result run(const Shape& shape, const std::vector<std::byte>& pool,
           const std::vector<std::byte>& staged, bool to_pool) {
  const DeviceBuffer<std::byte> device_pool(pool);
  const DeviceBuffer<std::byte> device_staged(staged);
  const DeviceBuffer<uint32_t> ids(kIds);
  cuda::CopyBlocks op{
      device_pool.get(),   shape.block_bytes, ids.get(),         static_cast<uint32_t>(kIds.size()),
      device_staged.get(), to_pool,           shape.slice_bytes, nullptr};
  const DeviceBuffer<uint32_t> sums(
      std::vector<uint32_t>(kIds.size() * cuda::slices_of_block(op), 0x7fc00000));
  op.sums = sums.get();
  const TestStream stream;
  REQUIRE(cuda::enqueue(op, {.stream = stream.get()}) == cudaSuccess);
  stream.wait();
  return {device_pool.values(), device_staged.values(), sums.values()};
}

TEST_CASE("block copy: out of the pool and back, with the checksum of each slice") {
  each_configuration([] {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.block_bytes);
      CAPTURE(shape.slice_bytes);
      const std::vector<std::byte> pool = random_bytes(kPoolBlocks * shape.block_bytes, 1);
      std::vector<std::byte> staged(kIds.size() * shape.block_bytes);
      for (size_t i = 0; i < kIds.size(); i++) {
        const auto from = pool.begin() + static_cast<long>(kIds[i] * shape.block_bytes);
        std::copy_n(from, shape.block_bytes,
                    staged.begin() + static_cast<long>(i * shape.block_bytes));
      }
      const Result out = run(shape, pool, std::vector<std::byte>(staged.size()), false);
      CHECK(out.pool == pool);
      CHECK(out.staged == staged);
      CHECK(out.sums == expected_sums(staged, shape));
      // What is not in the list stays as it is.
      std::vector<std::byte> expected = random_bytes(pool.size(), 2);
      const std::vector<std::byte> before = expected;
      for (const uint32_t id : kIds) {
        const auto at = static_cast<long>(id * shape.block_bytes);
        std::copy_n(pool.begin() + at, shape.block_bytes, expected.begin() + at);
      }
      const Result in = run(shape, before, staged, true);
      CHECK(in.pool == expected);
      CHECK(in.staged == staged);
      CHECK(in.sums == out.sums);
    }
  });
}

TEST_CASE("block copy: one bit anywhere changes its slice's checksum and no other") {
  const Shape shape{4112, 2064};
  std::vector<std::byte> pool = random_bytes(kPoolBlocks * shape.block_bytes, 3);
  const std::vector<std::byte> staged(kIds.size() * shape.block_bytes);
  const Result before = run(shape, pool, staged, false);
  for (const size_t at : {size_t{0}, size_t{2063}, size_t{2064}, size_t{4111}}) {
    CAPTURE(at);
    pool[3 * shape.block_bytes + at] ^= std::byte{0x10};
    const Result after = run(shape, pool, staged, false);
    pool[3 * shape.block_bytes + at] ^= std::byte{0x10};
    for (size_t i = 0; i < before.sums.size(); i++) {
      CHECK((after.sums[i] != before.sums[i]) == (i == 4 + at / 2064));
    }
  }
}

TEST_CASE("block copy: checksums of slices make those of longer runs") {
  const std::vector<std::byte> bytes = random_bytes(5000, 4);
  const auto part = [&](size_t begin, size_t end) {
    return plain_crc32c(std::span(bytes).subspan(begin, end - begin));
  };
  const uint32_t power = cuda::crc32c_power(8 * 1000);
  uint32_t crc = 0;  // of nothing
  for (size_t at = 0; at < 5000; at += 1000) {
    crc = cuda::crc32c_append(crc, part(at, at + 1000), power);
  }
  CHECK(crc == part(0, 5000));
  CHECK(cuda::crc32c_append(part(0, 4999), part(4999, 5000), cuda::crc32c_power(8)) == crc);
  CHECK(cuda::crc32c_append(crc, 0, cuda::crc32c_power(0)) == crc);
  // RFC 3720, B.4: 32 bytes of zeros.
  CHECK(plain_crc32c(std::vector<std::byte>(32)) == 0x8a9136aa);
}

TEST_CASE("block copy: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<std::byte> pool(random_bytes(4096, 5));
  const DeviceBuffer<std::byte> staged(random_bytes(4096, 6));
  const DeviceBuffer<uint32_t> words({0, 7});
  const TestStream stream;
  const cuda::CopyBlocks good{pool.get(),   1024,  words.get(), 1,
                              staged.get(), false, 1024,        words.get() + 1};
  const auto enqueue = [&](auto change) {
    cuda::CopyBlocks op = good;
    change(op);
    return cuda::enqueue(op, {.stream = stream.get()});
  };
  using Op = cuda::CopyBlocks;
  CHECK(enqueue([](Op& op) { op.pool += 8; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.staged += 8; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.block_bytes = 1000; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.slice_bytes = 0; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.slice_bytes = 1000; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.slice_bytes = cuda::kCopySliceBytesMax + 16; }) ==
        cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.sums = nullptr; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) {
          op.count = 0xffffffff;
          op.block_bytes = size_t{1} << 40;
        }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.count = 0; }) == cudaSuccess);
  CHECK(enqueue([](Op& op) { op.block_bytes = 0; }) == cudaSuccess);
  stream.wait();
  CHECK(staged.values() == random_bytes(4096, 6));
  CHECK(words.values() == std::vector<uint32_t>{0, 7});
}

TEST_CASE("block copy: cost") {
  const kernels::Cost cost =
      cuda::cost(cuda::CopyBlocks{.block_bytes = 100, .count = 3, .slice_bytes = 32});
  CHECK(cost.kv_bytes == 300);
  CHECK(cost.activation_bytes == 300 + 12 + 3 * 4 * 4);
}

}  // namespace
}  // namespace headrace::simt

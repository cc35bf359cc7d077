#include <doctest/doctest.h>

#include "kernels/cuda/ops.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {
namespace {

std::vector<unsigned char> pattern(size_t bytes) {
  std::vector<unsigned char> out(bytes);
  for (size_t i = 0; i < bytes; i++) out[i] = static_cast<unsigned char>(i * 131 + i / 251 + 1);
  return out;
}

// Around a vector, a warp's and a block's worth of them.
constexpr size_t kSizes[] = {1,    15,   16,    17,    511,   512,   513,   4095,
                             4096, 4111, 16383, 16384, 16385, 16400, 32768, 49157};

TEST_CASE("copy: every size around vectors, warps and blocks, and not a byte more") {
  constexpr size_t kBehind = 64;
  each_configuration([] {
    for (const size_t bytes : kSizes) {
      CAPTURE(bytes);
      const std::vector<unsigned char> source = pattern(bytes);
      const DeviceBuffer<unsigned char> from(source);
      const DeviceBuffer<unsigned char> to(std::vector<unsigned char>(bytes + kBehind, 0xa5));
      const TestStream stream;
      REQUIRE(cuda::enqueue(cuda::CopyBytes{to.get(), from.get(), bytes}, stream.get()) ==
              cudaSuccess);
      stream.wait();
      std::vector<unsigned char> expected = source;
      expected.resize(bytes + kBehind, 0xa5);
      CHECK(to.values() == expected);
    }
  });
}

TEST_CASE("copy: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<unsigned char> memory(pattern(64));
  const TestStream stream;
  unsigned char* p = memory.get();
  CHECK(cuda::enqueue(cuda::CopyBytes{p + 8, p + 32, 8}, stream.get()) == cudaErrorInvalidValue);
  CHECK(cuda::enqueue(cuda::CopyBytes{p + 32, p + 1, 8}, stream.get()) == cudaErrorInvalidValue);
  CHECK(cuda::enqueue(cuda::CopyBytes{p, p + 32, 0}, stream.get()) == cudaSuccess);
  stream.wait();
  CHECK(memory.values() == pattern(64));
}

TEST_CASE("copy: cost") {
  const kernels::Cost cost = cuda::cost(cuda::CopyBytes{nullptr, nullptr, 1000});
  CHECK(cost.bytes() == 2000);
  CHECK(cost.flops == 0);
}

}  // namespace
}  // namespace headrace::simt

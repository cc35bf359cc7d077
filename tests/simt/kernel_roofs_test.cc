#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "kernels/cuda/roofs.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {
namespace {

std::vector<uint32_t> words(size_t bytes) {
  std::vector<uint32_t> out(bytes / 4);
  for (size_t i = 0; i < out.size(); i++) out[i] = static_cast<uint32_t>(i * 2654435761u + 12345);
  return out;
}

// Around a vector, a block's width, a piece, and so many pieces that blocks take turns.
constexpr size_t kSizes[] = {16, 4096, 4112, 32768, 32784, 98304, 5 * 32768 + 16};

TEST_CASE("read roof: the sum of all words, as often as was asked") {
  each_configuration([] {
    for (const size_t bytes : kSizes) {
      for (const uint32_t times : {1u, 3u}) {
        CAPTURE(bytes);
        CAPTURE(times);
        const std::vector<uint32_t> source = words(bytes);
        // What lies behind is not read: it would show in the sum.
        std::vector<uint32_t> longer = source;
        longer.resize(source.size() + 64, 0x01010101);
        const DeviceBuffer<uint32_t> from(longer);
        const DeviceBuffer<uint32_t> sum({7});
        const TestStream stream;
        const cuda::ReadRoof op{from.get(), bytes, times, sum.get()};
        REQUIRE(cuda::enqueue(op, {.stream = stream.get(), .processors = 1}) == cudaSuccess);
        stream.wait();
        CHECK(sum.values()[0] == 7 + times * std::accumulate(source.begin(), source.end(), 0u));
      }
    }
  });
}

TEST_CASE("read roof: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<uint32_t> memory(words(4096));
  const TestStream stream;
  const cuda::Context at{.stream = stream.get(), .processors = 1};
  uint32_t* const p = memory.get();
  CHECK(cuda::enqueue(cuda::ReadRoof{p + 1, 64, 1, p}, at) == cudaErrorInvalidValue);
  CHECK(cuda::enqueue(cuda::ReadRoof{p, 72, 1, p}, at) == cudaErrorInvalidValue);
  CHECK(cuda::enqueue(cuda::ReadRoof{p, 65536, 0x40000000, p}, at) == cudaErrorInvalidValue);
  CHECK(cuda::enqueue(cuda::ReadRoof{p, 64, 1, p}, {.stream = stream.get(), .processors = 0}) ==
        cudaErrorInvalidValue);
  CHECK(cuda::enqueue(cuda::ReadRoof{p, 0, 1, p}, at) == cudaSuccess);
  CHECK(cuda::enqueue(cuda::ReadRoof{p, 64, 0, p}, at) == cudaSuccess);
  stream.wait();
  CHECK(memory.values() == words(4096));
}

// Small whole numbers, so that every order of sums gives the same.
float value(unsigned row, unsigned column) {
  return static_cast<float>(static_cast<int>((row * 5 + column * 3) % 7) - 2);
}
uint32_t bf16(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits >> 16;  // exact for these
}
uint32_t pair(float low, float high) { return bf16(high) << 16 | bf16(low); }

// As the PTX ISA lays out m16n8k16: `a` by rows, `b` its transpose by rows.
std::vector<uint32_t> fragments() {
  std::vector<uint32_t> out(cuda::kRoofFragmentWords);
  for (unsigned lane = 0; lane < 32; lane++) {
    const unsigned g = lane / 4;
    const unsigned k = lane % 4 * 2;
    const auto a = [&](unsigned row, unsigned at) {
      return pair(value(row, at), value(row, at + 1));
    };
    const auto b = [&](unsigned at) { return pair(value(at, g + 50), value(at + 1, g + 50)); };
    out[lane] = a(g, k);
    out[32 + lane] = a(g + 8, k);
    out[64 + lane] = a(g, k + 8);
    out[96 + lane] = a(g + 8, k + 8);
    out[128 + lane] = b(k);
    out[160 + lane] = b(k + 8);
  }
  return out;
}

// The four elements of a b that a lane holds, added up.
double element_sum(unsigned lane) {
  double sum = 0;
  for (const unsigned row : {lane / 4, lane / 4 + 8}) {
    for (const unsigned column : {lane % 4 * 2, lane % 4 * 2 + 1}) {
      for (unsigned k = 0; k < 16; k++) sum += value(row, k) * value(k, column + 50);
    }
  }
  return sum;
}

TEST_CASE("mma roof: each chain has done each round") {
  each_configuration([] {
    constexpr int kProcessors = 1;
    for (const uint32_t rounds : {0u, 1u, 3u}) {
      CAPTURE(rounds);
      const DeviceBuffer<uint32_t> in(fragments());
      const size_t threads = cuda::roof_threads(cuda::MmaRoof{}, kProcessors);
      const DeviceBuffer<float> sums(std::vector<float>(threads + 8, -1));
      const TestStream stream;
      const cuda::MmaRoof op{in.get(), rounds, sums.get()};
      REQUIRE(cuda::enqueue(op, {.stream = stream.get(), .processors = kProcessors}) ==
              cudaSuccess);
      stream.wait();
      const std::vector<float> got = sums.values();
      for (size_t t = 0; t < threads; t++) {
        REQUIRE(got[t] == rounds * cuda::kRoofChains * element_sum(t % 32));
      }
      for (size_t t = threads; t < got.size(); t++) CHECK(got[t] == -1);
    }
  });
}

TEST_CASE("launch roof: launches behind each other end") {
  const TestStream stream;
  for (int i = 0; i < 5; i++) {
    REQUIRE(cuda::enqueue(cuda::LaunchRoof{}, {.stream = stream.get()}) == cudaSuccess);
  }
  stream.wait();
}

TEST_CASE("roofs: cost") {
  CHECK(cuda::cost(cuda::ReadRoof{nullptr, 4096, 3, nullptr}).weight_bytes == 3 * 4096);
  const cuda::MmaRoof op{nullptr, 10, nullptr};
  CHECK(cuda::cost(op, 2).flops == uint64_t{2} * 16 * 10 * 8 * 4096);
}

}  // namespace
}  // namespace headrace::simt

#include <doctest/doctest.h>

#include <bit>

#include "kernels/cuda/logits.h"
#include "tests/simt/configurations.h"
#include "tests/simt/logits_case.h"

namespace headrace::simt {
namespace {

// Edits of the first `count` ids of a shuffled vocabulary.
std::vector<kernels::LogitEdit> edits_of(int32_t vocab, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<kernels::LogitEdit> edits;
  for (int32_t id = 0; id < vocab; id++) {
    const float divide = random() % 3 == 0 ? 1.0f : 1.0f + static_cast<float>(random() % 8) / 7;
    edits.push_back({id, divide, static_cast<float>(random() % 9) / 3 - 1.5f});
  }
  std::shuffle(edits.begin(), edits.end(), random);
  edits.resize(std::min(count, edits.size()));
  return edits;
}

TEST_CASE("adjust logits: rows with none, a few, and more edits than threads") {
  each_configuration([] {
    LogitsCase c(5, 301, 1);
    c.at(0, 7) = 0;
    c.at(2, 11) = -INFINITY;
    std::vector<kernels::LogitEdit> edits;
    std::vector<int32_t> begins = {0};
    for (const size_t count : {0, 3, 301, 128, 129}) {
      const auto row = edits_of(c.vocab, count, static_cast<uint32_t>(count));
      edits.insert(edits.end(), row.begin(), row.end());
      begins.push_back(static_cast<int32_t>(edits.size()));
    }
    const DeviceBuffer<float> x(c.x);
    const DeviceBuffer<kernels::LogitEdit> device_edits(edits);
    const DeviceBuffer<int32_t> device_begins(begins);
    const TestStream stream;
    const kernels::AdjustLogits op{
        x.get(), device_edits.get(), device_begins.get(), c.rows, c.vocab, c.stride};
    REQUIRE(cuda::enqueue(op, cuda::Context{.stream = stream.get()}) == cudaSuccess);
    stream.wait();
    kernels::reference(
        kernels::AdjustLogits{c.x.data(), edits.data(), begins.data(), c.rows, c.vocab, c.stride});
    const std::vector<float> got = x.values();
    for (size_t i = 0; i < got.size(); i++) {
      CAPTURE(i);
      // The same operations in double; a fused one rounds once less.
      if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(c.x[i])) continue;
      CHECK(std::abs(got[i] - c.x[i]) <= std::abs(c.x[i]) * 0x1p-23);
    }
  });
}

TEST_CASE("adjust logits: ids that are none change nothing") {
  const LogitsCase c(1, 8, 1);
  const DeviceBuffer<float> x(c.x);
  const DeviceBuffer<kernels::LogitEdit> edits({{-1, 2, 1}, {8, 2, 1}, {INT32_MAX, 2, 1}});
  const DeviceBuffer<int32_t> begins({0, 3});
  const TestStream stream;
  const kernels::AdjustLogits op{x.get(), edits.get(), begins.get(), 1, 8, c.stride};
  REQUIRE(cuda::enqueue(op, cuda::Context{.stream = stream.get()}) == cudaSuccess);
  stream.wait();
  const std::vector<float> got = x.values();
  for (size_t i = 0; i < 8; i++) CHECK(got[i] == c.x[i]);
}

TEST_CASE("adjust logits: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<float> x(std::vector<float>(64, 1.0f));
  const DeviceBuffer<kernels::LogitEdit> edits({{0, 2, 1}});
  const DeviceBuffer<int32_t> begins({0, 1});
  const TestStream stream;
  const auto enqueue = [&](float* logits, int32_t rows, int32_t vocab, int64_t stride) {
    return cuda::enqueue(
        kernels::AdjustLogits{logits, edits.get(), begins.get(), rows, vocab, stride},
        cuda::Context{.stream = stream.get()});
  };
  CHECK(enqueue(x.get() + 1, 1, 32, 32) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), -1, 32, 32) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 1, 32, 28) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 1, 32, 33) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 1, cuda::kLogitsVocabMax + 1, 1 << 20) == cudaErrorInvalidValue);
  CHECK(enqueue(x.get(), 0, 32, 32) == cudaSuccess);
  CHECK(enqueue(x.get(), 1, 0, 32) == cudaSuccess);
  stream.wait();
  CHECK(x.values() == std::vector<float>(64, 1.0f));
}

}  // namespace
}  // namespace headrace::simt

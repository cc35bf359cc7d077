#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/logits.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {

// Rows of logits, 32 floats of NaN or more behind each row's vocabulary.
struct LogitsCase {
  LogitsCase(int32_t row_count, int32_t vocabulary, uint32_t seed, float deviation = 3)
      : rows(row_count), vocab(vocabulary), stride((vocabulary + 3) / 4 * 4 + 32) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    x.assign(static_cast<size_t>(rows * stride), NAN);
    for (int32_t r = 0; r < rows; r++) {
      for (int32_t i = 0; i < vocab; i++) at(r, i) = normal(random);
    }
  }
  float& at(int32_t row, int32_t id) { return x[static_cast<size_t>(row * stride + id)]; }

  int32_t rows;
  int32_t vocab;
  int64_t stride;
  std::vector<float> x;
};

// Workspace full of NaN.
struct Workspace {
  explicit Workspace(size_t bytes) : memory(std::vector<uint32_t>((bytes + 3) / 4, 0x7fc00000)) {}
  cuda::Context context(const TestStream& stream, size_t bytes) const {
    return {.stream = stream.get(), .workspace = memory.get(), .workspace_bytes = bytes};
  }
  DeviceBuffer<uint32_t> memory;
};

// Runs an operation that wants workspace.
template <class Op>
void run_with_workspace(const Op& op) {
  const size_t bytes = cuda::workspace_bytes(op);
  const Workspace workspace(bytes);
  const TestStream stream;
  REQUIRE(cuda::enqueue(op, workspace.context(stream, bytes)) == cudaSuccess);
  stream.wait();
}

}  // namespace headrace::simt

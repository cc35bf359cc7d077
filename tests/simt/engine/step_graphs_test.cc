#include "kernels/cuda/step_graphs.h"

#include <stdexcept>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/device.h"
#include "tests/simt/cudart/control.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

namespace headrace::cuda {
namespace {

struct Bench {
  Bench() { simt::reset(); }
  ~Bench() { simt::reset(); }
};

TEST_CASE("what was recorded runs each time it is started, and not before") {
  const Bench bench;
  const Stream stream(0);
  const kernels::Buffer memory = device_memory(0, 4, stream);
  const kernels::Buffer host = pinned_memory(0, 4);
  StepGraphs graphs(0);
  const StepShape shape{.rows = 4};
  CHECK_FALSE(graphs.has(shape));
  const auto copy = [&] {
    check(cudaMemcpyAsync(memory.data(), host.data(), 4, cudaMemcpyHostToDevice, stream.get()), 0,
          "copy");
  };
  const auto seen = [&] {
    const kernels::Buffer back = pinned_memory(0, 4);
    check(cudaMemcpyAsync(back.data(), memory.data(), 4, cudaMemcpyDeviceToHost, stream.get()), 0,
          "copy");
    stream.wait();
    return *back.as<int>();
  };
  *host.as<int>() = 5;
  graphs.record(shape, stream.get(), copy);
  CHECK(seen() == 0);
  graphs.start(shape, stream.get());
  CHECK(seen() == 5);
  *host.as<int>() = 6;
  graphs.start(shape, stream.get());
  CHECK(seen() == 6);
}

TEST_CASE("at most so many are kept; the one used longest ago goes") {
  const Bench bench;
  const Stream stream(0);
  const kernels::Buffer memory = device_memory(0, 4, stream);
  StepGraphs graphs(0);
  const auto clear = [&] {
    check(cudaMemsetAsync(memory.data(), 0, 4, stream.get()), 0, "memset");
  };
  const auto count = static_cast<int32_t>(StepGraphs::kGraphsMax);
  for (int32_t rows = 0; rows < count; ++rows) {
    graphs.record({.rows = rows}, stream.get(), clear);
    graphs.start({.rows = rows}, stream.get());
  }
  graphs.start({.rows = 0}, stream.get());
  stream.wait();
  graphs.record({.rows = count}, stream.get(), clear);
  CHECK(graphs.size() == StepGraphs::kGraphsMax);
  CHECK(graphs.has({.rows = 0}));
  CHECK_FALSE(graphs.has({.rows = 1}));
  graphs.clear();
  CHECK(graphs.size() == 0);
}

TEST_CASE("a recording that fails leaves the stream as it was") {
  const Bench bench;
  const Stream stream(0);
  StepGraphs graphs(0);
  CHECK_THROWS_AS(graphs.record({}, stream.get(), [] { throw std::runtime_error("no"); }),
                  std::runtime_error);
  CHECK_FALSE(graphs.has({}));
  const kernels::Buffer memory = device_memory(0, 4, stream);
  check(cudaMemsetAsync(memory.data(), 0, 4, stream.get()), 0, "memset");
  stream.wait();
}

}  // namespace
}  // namespace headrace::cuda

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cost.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/runtime.h"

// What the programs of this folder share: a device with its stream and events, memory whose bits
// change as those of a model do, times of launches, and rows of results. All throws DeviceError.

namespace headrace::gpu {

using Json = nlohmann::ordered_json;

// One result: a line of JSON on stdout, at once, so that what is ended early has said what it knew.
void emit(const Json& row);

// How much is measured. `tiny`: shapes that an emulator does in a moment.
struct Scale {
  bool tiny = false;
  double each = 0.1;  // seconds for each row
  // Copies of weights and KV that launches go through in turn, together so many bytes: four times
  // the largest L2 there is, so that nothing is found there that a model would not find.
  uint64_t ring_bytes = uint64_t{256} << 20;
};

// Seconds of one launch.
struct Times {
  double median = 0;
  double least = 0;
  double p90 = 0;
  size_t samples = 0;
};
Times times_of(std::vector<double> seconds);

class Bench {
 public:
  Bench(int ordinal, const Scale& scale);
  ~Bench();
  Bench(const Bench&) = delete;

  const Scale& scale() const { return scale_; }
  int ordinal() const { return ordinal_; }
  int processors() const { return processors_; }
  cudaStream_t stream() const { return stream_.get(); }
  void wait() const { stream_.wait(); }
  // Memory of the device that is free now.
  uint64_t memory_free() const;
  cuda::Context context(const kernels::Buffer& workspace = {}) const {
    return {.stream = stream_.get(),
            .processors = processors_,
            .workspace = workspace.data(),
            .workspace_bytes = workspace.size()};
  }

  // Zeroed; with finite numbers of any 16- or 32-bit type, of either sign; with `values`.
  kernels::Buffer memory(size_t bytes) const;
  kernels::Buffer numbers(size_t bytes, uint32_t mask = 0xbfffbfff) const;
  template <class T>
  kernels::Buffer values(const std::vector<T>& from) const {
    kernels::Buffer to = memory(from.size() * sizeof(T));
    upload(to, from.data(), from.size() * sizeof(T));
    return to;
  }

  // `launch(i)` puts launch i of `count` on the stream. Recorded once as a graph, which is run over
  // and over: at least 30 samples of at least 0.2 ms each while the time lasts twice.
  Times time(int count, const std::function<cudaError_t(int)>& launch) const;
  // The same, as a row: `what` says the shape; `working_set`: bytes that all launches go through.
  void measure(const std::string& op, const std::string& what, int32_t rows,
               const kernels::Cost& cost, uint64_t working_set, int count,
               const std::function<cudaError_t(int)>& launch) const;

 private:
  void upload(const kernels::Buffer& to, const void* from, size_t bytes) const;

  const int ordinal_;
  const Scale scale_;
  int processors_ = 1;
  cuda::Stream stream_;
  cudaEvent_t events_[2] = {};
};

// The parts of the grid, each in a file of its name.
void measure_products(const Bench& bench);
void measure_attention(const Bench& bench);
void measure_rows(const Bench& bench);

}  // namespace headrace::gpu

#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>

namespace headrace::cuda {

// What must be equal for a step to be another's repetition with other data.
struct StepShape {
  int32_t rows = 0;
  int32_t variant = 0;  // which operations
  int32_t chunks = 0;   // of attention's plan, as all that follows
  int32_t tiles = 0;
  int32_t spread = 0;
  auto operator<=>(const StepShape&) const = default;
};

// Whole steps as CUDA graphs, by shape: recorded once, then started by one call instead of
// hundreds. At most kGraphsMax; the one that was used least recently goes.
class StepGraphs {
 public:
  static constexpr size_t kGraphsMax = 64;

  explicit StepGraphs(int ordinal) : ordinal_(ordinal) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  bool has(const StepShape& shape) const { return graphs_.contains(shape); }
  // Records what `launches` puts on the stream; nothing runs. Not for a shape that is there.
  void record(const StepShape& shape, cudaStream_t stream, const std::function<void()>& launches);
  // Starts a recorded one.
  void start(const StepShape& shape, cudaStream_t stream);
  void clear();
  size_t size() const { return graphs_.size(); }

 private:
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    uint64_t used = 0;
  };
  void make_room();

  const int ordinal_;
  uint64_t clock_ = 0;
  std::map<StepShape, Entry> graphs_;
};

}  // namespace headrace::cuda

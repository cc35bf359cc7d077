#include "kernels/cuda/step_graphs.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/runtime.h"

namespace headrace::cuda {

StepGraphs::~StepGraphs() { clear(); }

void StepGraphs::clear() {
  for (const auto& [shape, entry] : graphs_) cudaGraphExecDestroy(entry.graph);
  graphs_.clear();
}

void StepGraphs::make_room() {
  if (graphs_.size() < kGraphsMax) return;
  const auto oldest =
      std::min_element(graphs_.begin(), graphs_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  cudaGraphExecDestroy(oldest->second.graph);
  graphs_.erase(oldest);
}

void StepGraphs::record(const StepShape& shape, cudaStream_t stream,
                        const std::function<void()>& launches) {
  KERNELS_CHECK(!has(shape));
  make_room();
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), ordinal_, "a recording");
  cudaGraph_t graph = nullptr;
  try {
    launches();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), ordinal_, "a recording");
  Entry entry;
  const cudaError_t made = cudaGraphInstantiate(&entry.graph, graph, 0);
  cudaGraphDestroy(graph);
  check(made, ordinal_, "a graph");
  graphs_.emplace(shape, entry);
}

void StepGraphs::start(const StepShape& shape, cudaStream_t stream) {
  Entry& entry = graphs_.at(shape);
  entry.used = ++clock_;
  check(cudaGraphLaunch(entry.graph, stream), ordinal_, "the start of a graph");
}

}  // namespace headrace::cuda

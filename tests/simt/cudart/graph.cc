#include "tests/simt/cudart/state.h"

namespace headrace::simt {
namespace {

// One launch of a graph. Of the nodes that are ready the youngest runs first, so that an order
// that only the capture had, and no edge, does not hold.
struct Run {
  std::vector<CUgraph_st::Node> nodes;
  std::set<size_t> open;
  bool reverse = true;

  bool ready(size_t node) const {
    const auto& after = nodes[node].after;
    return std::none_of(after.begin(), after.end(), [&](size_t a) { return open.count(a); });
  }

  Step step() {
    std::vector<size_t> order(open.begin(), open.end());
    if (reverse) std::reverse(order.begin(), order.end());
    for (size_t node : order) {
      if (!ready(node)) continue;
      const Step step = nodes[node].op.step ? nodes[node].op.step() : Step::kDone;
      if (step == Step::kPending) continue;
      if (step == Step::kDone) open.erase(node);
      return open.empty() ? Step::kDone : Step::kMoved;
    }
    return open.empty() ? Step::kDone : Step::kPending;
  }
};

// All nodes that the frontier follows, directly or not.
std::set<size_t> reach(const CUgraph_st& graph, const std::set<size_t>& frontier) {
  std::set<size_t> seen;
  std::vector<size_t> open(frontier.begin(), frontier.end());
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return seen;
}

}  // namespace

cudaError_t capture(Runtime& rt, CUstream_st& stream, Op op) {
  Capture& capture = *stream.capture;
  if (!capture.valid) return refuse(rt, cudaErrorStreamCaptureInvalidated, "an invalid capture");
  capture.graph.nodes.push_back({std::move(op), stream.frontier});
  stream.frontier = {capture.graph.nodes.size() - 1};
  return cudaSuccess;
}

void invalidate(CUstream_st& stream) { stream.capture->valid = false; }

cudaError_t capture_allows(Runtime& rt) {
  for (const auto& capture : rt.captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && mine)) {
      capture->valid = false;
      return refuse(rt, cudaErrorStreamCaptureUnsupported, "a capture forbids this call");
    }
  }
  return cudaSuccess;
}

}  // namespace headrace::simt

using namespace headrace::simt;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call_on(handle, [&](Runtime& rt, Lock&, const Stream& stream) {
    if (stream->capture) return refuse(rt, cudaErrorIllegalState, "a capture within a capture");
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream.get();
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->frontier.clear();
    rt.captures.push_back(stream->capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  return call([&](Runtime& rt, Lock&) {
    const auto stream = find_stream(rt, handle);
    if (!stream || !out) return cudaErrorInvalidValue;
    *out = nullptr;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return refuse(rt, cudaErrorIllegalState, "no capture to end");
    if (capture->origin != stream.get()) {
      return refuse(rt, cudaErrorStreamCaptureUnmatched, "the capture began on another stream");
    }
    const bool joined =
        reach(capture->graph, stream->frontier).size() == capture->graph.nodes.size();
    for (const auto& other : rt.streams) {
      if (other->capture != capture) continue;
      other->capture.reset();
      other->frontier.clear();
    }
    std::erase(rt.captures, capture);
    if (!capture->valid) return refuse(rt, cudaErrorStreamCaptureInvalidated, "an invalid capture");
    if (!joined) return refuse(rt, cudaErrorStreamCaptureUnjoined, "a stream that did not join");
    const auto graph = std::make_shared<CUgraph_st>(std::move(capture->graph));
    rt.graphs.emplace(graph.get(), graph);
    *out = graph.get();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  return call([&](Runtime& rt, Lock&) {
    const auto stream = find_stream(rt, handle);
    if (!stream || !out) return cudaErrorInvalidValue;
    *out = !stream->capture         ? cudaStreamCaptureStatusNone
           : stream->capture->valid ? cudaStreamCaptureStatusActive
                                    : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&](Runtime& rt, Lock&) {
    return rt.graphs.erase(graph) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  return call([&](Runtime& rt, Lock&) {
    if (!out || !rt.graphs.count(graph)) return cudaErrorInvalidValue;
    const auto exec = std::make_shared<CUgraphExec_st>();
    exec->nodes = graph->nodes;
    rt.execs.emplace(exec.get(), exec);
    *out = exec.get();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return call([&](Runtime& rt, Lock& lock) {
    if (!rt.execs.count(exec)) return refuse(rt, cudaErrorInvalidValue, "no such graph");
    const auto stream = find_stream(rt, handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return refuse(rt, cudaErrorStreamCaptureUnsupported, "a graph in a graph");
    Run run{exec->nodes, {}, rt.reverse};
    for (size_t i = 0; i < run.nodes.size(); ++i) run.open.insert(i);
    const auto last = std::make_shared<Record>();
    Op op{"graph", [run]() mutable { return run.step(); }, exec->last, last};
    exec->last = last;
    return submit(rt, lock, handle, std::move(op));
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&](Runtime& rt, Lock&) {
    return rt.execs.erase(exec) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

#include "tests/simt/host_programs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace headrace::simt::programs {
namespace {

constexpr size_t kBytes = 4096;

void must(cudaError_t error) {
  if (error) throw std::runtime_error(cudaGetErrorName(error));
}

struct Stream {
  cudaStream_t s = nullptr;
  Stream() { must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(s); }
};

struct Event {
  cudaEvent_t e = nullptr;
  Event() { must(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(e); }
};

struct OnDevice {
  char* p = nullptr;
  OnDevice() { must(cudaMalloc(reinterpret_cast<void**>(&p), kBytes)); }
  ~OnDevice() { cudaFree(p); }
};

struct Pinned {
  char* p = nullptr;
  explicit Pinned(char value) {
    must(cudaMallocHost(reinterpret_cast<void**>(&p), kBytes));
    fill(value);
  }
  ~Pinned() { cudaFreeHost(p); }
  void fill(char value) { std::memset(p, value, kBytes); }
  bool all(char value) const {
    return std::all_of(p, p + kBytes, [=](char c) { return c == value; });
  }
};

void up(const OnDevice& to, const Pinned& from, const Stream& stream) {
  must(cudaMemcpyAsync(to.p, from.p, kBytes, cudaMemcpyHostToDevice, stream.s));
}

void across(const OnDevice& to, const OnDevice& from, const Stream& stream) {
  must(cudaMemcpyAsync(to.p, from.p, kBytes, cudaMemcpyDeviceToDevice, stream.s));
}

void down(const Pinned& to, const OnDevice& from, const Stream& stream) {
  must(cudaMemcpyAsync(to.p, from.p, kBytes, cudaMemcpyDeviceToHost, stream.s));
}

void follow(const Stream& later, const Event& event, const Stream& earlier) {
  must(cudaEventRecord(event.e, earlier.s));
  must(cudaStreamWaitEvent(later.s, event.e, 0));
}

}  // namespace

bool hand_over(bool with_event) {
  Pinned source(1), result(0);
  OnDevice a, b;
  Stream first, second;
  Event event;
  up(a, source, first);
  if (with_event) follow(second, event, first);
  across(b, a, second);
  down(result, b, second);
  must(cudaStreamSynchronize(second.s));
  return result.all(1);
}

bool reuse_source(bool after_wait) {
  Pinned source(2), result(0);
  OnDevice a;
  Stream stream;
  up(a, source, stream);
  if (after_wait) must(cudaStreamSynchronize(stream.s));
  source.fill(3);
  down(result, a, stream);
  must(cudaStreamSynchronize(stream.s));
  return result.all(2);
}

bool read_result(bool after_wait) {
  Pinned source(4), result(0);
  OnDevice a;
  Stream stream;
  up(a, source, stream);
  down(result, a, stream);
  if (after_wait) must(cudaStreamSynchronize(stream.s));
  return result.all(4);
}

bool join_in_graph(bool before_the_reader) {
  Pinned source(5), result(0);
  OnDevice a, b;
  Stream main, side;
  Event forked, joined;
  must(cudaMemset(a.p, 0, kBytes));
  must(cudaDeviceSynchronize());
  must(cudaStreamBeginCapture(main.s, cudaStreamCaptureModeThreadLocal));
  follow(side, forked, main);
  up(a, source, side);
  must(cudaEventRecord(joined.e, side.s));
  if (before_the_reader) must(cudaStreamWaitEvent(main.s, joined.e, 0));
  across(b, a, main);
  if (!before_the_reader) must(cudaStreamWaitEvent(main.s, joined.e, 0));
  down(result, b, main);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamEndCapture(main.s, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphLaunch(exec, main.s));
  must(cudaStreamSynchronize(main.s));
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
  return result.all(5);
}

bool use_fresh_memory(bool with_event) {
  Pinned result(0);
  Stream owner, user;
  Event event, used;
  void* fresh = nullptr;
  must(cudaMallocAsync(&fresh, kBytes, owner.s));
  if (with_event) follow(user, event, owner);
  must(cudaMemsetAsync(fresh, 6, kBytes, user.s));
  must(cudaMemcpyAsync(result.p, fresh, kBytes, cudaMemcpyDeviceToHost, user.s));
  if (cudaStreamSynchronize(user.s)) return false;
  follow(owner, used, user);
  must(cudaFreeAsync(fresh, owner.s));
  must(cudaStreamSynchronize(owner.s));
  return result.all(6);
}

cudaError_t copy_whole(bool exactly) {
  Pinned source(7);
  OnDevice a;
  Stream stream;
  const size_t bytes = exactly ? kBytes : kBytes + 1;
  const cudaError_t error = cudaMemcpyAsync(a.p, source.p, bytes, cudaMemcpyHostToDevice, stream.s);
  must(cudaStreamSynchronize(stream.s));
  return error;
}

cudaError_t set_on_stream(bool own) {
  OnDevice a;
  Stream stream;
  const cudaError_t error = cudaMemsetAsync(a.p, 0, kBytes, own ? stream.s : nullptr);
  must(cudaDeviceSynchronize());
  return error;
}

int read_on_host(bool copied) {
  OnDevice a;
  must(cudaMemset(a.p, 8, kBytes));
  must(cudaDeviceSynchronize());
  char byte = 0;
  if (!copied) return *static_cast<volatile char*>(a.p);
  must(cudaMemcpy(&byte, a.p, 1, cudaMemcpyDeviceToHost));
  return byte;
}

}  // namespace headrace::simt::programs

// Several host threads with streams of their own, as engines in one process have.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/cudart/control.h"

namespace headrace::simt {
namespace {

constexpr int kThreads = 3;
constexpr int kRounds = 20;
constexpr unsigned kValues = 64;
constexpr size_t kBytes = kValues * sizeof(unsigned);

__global__ void add_kernel(unsigned* values, unsigned what) { values[threadIdx.x] += what; }

// What one thread has: pinned and device memory, two streams and an event between them.
struct User {
  explicit User(unsigned number) : me(number) {
    ok = !cudaSetDevice(0) && !cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking) &&
         !cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking) &&
         !cudaEventCreateWithFlags(&ready, cudaEventDisableTiming) &&
         !cudaMallocHost(reinterpret_cast<void**>(&host), kBytes) &&
         !cudaMalloc(reinterpret_cast<void**>(&device), kBytes);
  }
  ~User() {
    cudaFree(device);
    cudaFreeHost(host);
    cudaEventDestroy(ready);
    cudaStreamDestroy(out);
    cudaStreamDestroy(in);
  }

  // Copies in, adds, and copies out on the other stream.
  bool enqueue() const {
    return !cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, in) &&
           !cuda::launch("add", in, dim3(1), dim3(kValues), 0, add_kernel, device, me) &&
           !cudaEventRecord(ready, in) && !cudaStreamWaitEvent(out, ready, 0) &&
           !cudaMemcpyAsync(host, device, kBytes, cudaMemcpyDeviceToHost, out);
  }
  void fill(unsigned value) const { std::fill(host, host + kValues, value); }
  bool holds(unsigned value) const {
    return std::all_of(host, host + kValues, [&](unsigned v) { return v == value; });
  }

  unsigned me;
  bool ok = false;
  cudaStream_t in = nullptr;
  cudaStream_t out = nullptr;
  cudaEvent_t ready = nullptr;
  unsigned* host = nullptr;
  unsigned* device = nullptr;
};

// How many rounds went wrong. Waits in three ways: for a stream, an event, by polling.
int run_rounds(const User& user) {
  if (!user.ok) return kRounds;
  int wrong = 0;
  for (unsigned round = 0; round < kRounds; round++) {
    user.fill(round);
    bool ok = user.enqueue();
    if (round % 3 == 0) {
      ok = ok && !cudaStreamSynchronize(user.out);
    } else if (round % 3 == 1) {
      ok = ok && !cudaEventSynchronize(user.ready) && !cudaStreamSynchronize(user.out);
    } else {
      cudaError_t error;
      while ((error = cudaStreamQuery(user.out)) == cudaErrorNotReady) std::this_thread::yield();
      ok = ok && !error;
    }
    wrong += !(ok && user.holds(round + user.me));
  }
  return wrong;
}

// The same through a graph, which each thread captures for itself.
int run_graphs(const User& user) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  bool ok = user.ok && !cudaStreamBeginCapture(user.in, cudaStreamCaptureModeThreadLocal);
  ok = ok && user.enqueue() && !cudaEventRecord(user.ready, user.out) &&
       !cudaStreamWaitEvent(user.in, user.ready, 0) && !cudaStreamEndCapture(user.in, &graph) &&
       !cudaGraphInstantiate(&exec, graph, 0);
  if (!ok) return kRounds;
  int wrong = 0;
  for (unsigned round = 0; round < kRounds; round++) {
    user.fill(round);
    ok = !cudaGraphLaunch(exec, user.in) && !cudaStreamSynchronize(user.in);
    wrong += !(ok && user.holds(round + user.me));
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return wrong;
}

int in_threads(int (*run)(const User&)) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned me = 1; me <= kThreads; me++)
    threads.emplace_back([&, me] { wrong += run(User(me)); });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

void check_all_modes(int (*run)(const User&)) {
  for (const Streams mode : {Streams::kEager, Streams::kLazy, Streams::kThreaded}) {
    CAPTURE(static_cast<int>(mode));
    reset(mode);
    CHECK(in_threads(run) == 0);
    CHECK(leaks().empty());
    CHECK(take_reports().empty());
  }
  reset();
}

TEST_CASE("threads with streams of their own wait at once") { check_all_modes(&run_rounds); }

TEST_CASE("threads capture and launch graphs of their own at once") {
  check_all_modes(&run_graphs);
}

TEST_CASE("a thread's wait ends though another one's stream never moves") {
  for (const Streams mode : {Streams::kLazy, Streams::kThreaded}) {
    reset(mode, 2);
    hold_device(1, true);
    std::atomic<bool> over = false;
    const User user(1);
    std::thread stuck([&] {
      cudaSetDevice(1);
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      cudaLaunchHostFunc(
          stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &over);
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    });
    CHECK(run_rounds(user) == 0);
    CHECK(!over);
    hold_device(1, false);
    stuck.join();
    CHECK(over);
  }
  reset();
}

}  // namespace
}  // namespace headrace::simt

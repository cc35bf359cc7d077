// What the stand-in runtime adds: modes, injected failures, bounds, reports.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>

#include "kernels/cuda/dev.h"
#include "tests/simt/cudart/control.h"
#include "tests/simt/host_programs.h"
#include "tests/simt/launch.h"

namespace headrace::simt {
namespace {

constexpr Streams kModes[] = {Streams::kEager, Streams::kLazy, Streams::kThreaded};

cudaStream_t stream() {
  cudaStream_t made = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) == cudaSuccess);
  return made;
}

char* device_memory(size_t bytes) {
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, bytes) == cudaSuccess);
  return static_cast<char*>(p);
}

Launch launch_of(std::function<void()> thread) {
  Launch launch;
  launch.kernel = "test_kernel";
  launch.thread = std::move(thread);
  return launch;
}

// Whether the body ended well in a process of its own, which has no children and no peers.
bool survives(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    signal(SIGSEGV, SIG_DFL);  // the test framework would report it
    if (!freopen("/dev/null", "w", stderr)) _exit(3);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("good programs are silent in all modes and leave nothing behind") {
  for (Streams mode : kModes) {
    reset(mode);
    CHECK(programs::hand_over(true));
    CHECK(programs::reuse_source(true));
    CHECK(programs::read_result(true));
    CHECK(programs::join_in_graph(true));
    CHECK(programs::use_fresh_memory(true));
    CHECK(programs::copy_whole(true) == cudaSuccess);
    CHECK(programs::set_on_stream(true) == cudaSuccess);
    CHECK(programs::read_on_host(true) == 8);
    CHECK(leaks().empty());
    CHECK(take_reports().empty());
  }
}

TEST_CASE("planted: lazy streams show what waits for nothing") {
  reset(Streams::kLazy);
  CHECK_FALSE(programs::hand_over(false));
  CHECK_FALSE(programs::reuse_source(false));
  CHECK_FALSE(programs::read_result(false));
  CHECK_FALSE(programs::use_fresh_memory(false));
}

TEST_CASE("a held device runs nothing until it is let go, and says nothing") {
  reset(Streams::kThreaded);
  hold_device(0, true);
  cudaStream_t s = stream();
  bool ran = false;
  cudaLaunchHostFunc(
      s, [](void* p) { *static_cast<bool*>(p) = true; }, &ran);
  CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
  hold_device(0, false);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(ran);
}

TEST_CASE("planted: a graph's late join shows in all modes") {
  for (Streams mode : kModes) {
    reset(mode);
    CHECK_FALSE(programs::join_in_graph(false));
    set_graph_order(false);  // the order of the capture hides it
    CHECK(programs::join_in_graph(false));
  }
}

TEST_CASE("planted: past an allocation, and stream 0, in all modes") {
  for (Streams mode : kModes) {
    reset(mode);
    CHECK(programs::copy_whole(false) == cudaErrorInvalidValue);
    CHECK(programs::set_on_stream(false) == cudaErrorInvalidResourceHandle);
    CHECK(enqueue(launch_of([] {}), nullptr) == cudaErrorInvalidResourceHandle);
    CHECK(take_reports().size() == 3);
  }
}

TEST_CASE("planted: the host reads through a device pointer") {
  for (Streams mode : kModes) {
    if (!host_guard_works(mode)) {
      MESSAGE("skipped in mode threaded: no memory protection keys here");
      continue;
    }
    reset(Streams::kLazy);  // a fork takes no device thread along
    const auto with = [&](bool copied, bool guard) {
      return survives([=] {
        reset(mode);
        set_host_guard(guard);
        programs::read_on_host(copied);
      });
    };
    CHECK_FALSE(with(false, true));
    CHECK(with(true, true));
    CHECK(with(false, false));
  }
}

TEST_CASE("kernels run in order; a fault stays, with its reason") {
  for (Streams mode : kModes) {
    reset(mode);
    cudaStream_t s = stream();
    char* p = device_memory(4);
    CHECK(enqueue(launch_of([p] { p[0] = 7; }), s) == cudaSuccess);
    CHECK(enqueue(launch_of([p] { p[1] = char(p[0] + 1); }), s) == cudaSuccess);
    char host[4];
    CHECK(cudaMemcpyAsync(host, p, 4, cudaMemcpyDeviceToHost, s) == cudaSuccess);
    CHECK(host[1] == 8);  // pageable memory: the call itself waits
    fail_launch(2);
    CHECK(enqueue(launch_of([] {}), s) == cudaSuccess);
    const cudaError_t at_once = enqueue(launch_of([] {}), s);
    CHECK((at_once == cudaSuccess || at_once == cudaErrorLaunchFailure));
    CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
    CHECK(cudaMemcpy(host, p, 4, cudaMemcpyDeviceToHost) == cudaErrorLaunchFailure);
    void* more;
    CHECK(cudaMalloc(&more, 4) == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);  // it stays
    REQUIRE(take_reports().size() == 1);
  }
}

TEST_CASE("a kernel's write past an allocation is found behind it") {
  reset(Streams::kLazy);
  cudaStream_t s = stream();
  char* p = device_memory(100);
  // Through the bytes of the pointer: the sanitizers' own check would come first.
  const auto write = [p] {
    volatile uintptr_t at = reinterpret_cast<uintptr_t>(p) + 100;
    const auto hit = [](char* to) __attribute__((no_sanitize("address"))) { *to = 1; };
    hit(reinterpret_cast<char*>(at));
  };
  CHECK(enqueue(launch_of(write), s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
  const auto reports = take_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0] == "test_kernel: written past an allocation of 100 bytes");
}

TEST_CASE("shapes that no device runs are refused") {
  reset(Streams::kLazy);
  cudaStream_t s = stream();
  Launch launch = launch_of([] {});
  for (const dim3 block : {dim3(1025, 1, 1), dim3(32, 33, 1), dim3(0, 1, 1)}) {
    launch.block = block;
    CHECK(enqueue(launch, s) == cudaErrorInvalidConfiguration);
  }
  launch.block = dim3(1, 1, 1);
  launch.shared_bytes = 227 * 1024 + 1;
  CHECK(enqueue(launch, s) == cudaErrorInvalidConfiguration);
  launch.shared_bytes = 227 * 1024;
  CHECK(enqueue(launch, s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
}

TEST_CASE("a dependent launch joins the one in front, on a stream and in a graph") {
  for (Streams mode : kModes) {
    reset(mode);
    cudaStream_t s = stream();
    static int ran;
    ran = 0;
    Launch first = launch_of([] {
      cuda::grid_dependency_wait();
      ++ran;
    });
    Launch second = first;
    second.dependent = true;
    const auto both = [&] {
      CHECK(enqueue(first, s) == cudaSuccess);
      CHECK(enqueue(second, s) == cudaSuccess);
    };
    both();
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(ran == 2);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
    both();
    CHECK(cudaStreamEndCapture(s, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    for (int i = 2; i <= 3; ++i) {
      CHECK(cudaGraphLaunch(exec, s) == cudaSuccess);
      CHECK(cudaStreamSynchronize(s) == cudaSuccess);
      CHECK(ran == 2 * i);
    }
    fail_launch(2);
    CHECK(cudaGraphLaunch(exec, s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
    CHECK(take_reports() == std::vector<std::string>{"test_kernel: an injected failure"});
  }
}

TEST_CASE("injected: memory that is not there, a device that is lost") {
  reset(Streams::kLazy, 2);
  set_memory(0, 4096);
  void* p;
  CHECK(cudaMalloc(&p, 4097) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&p, 4096) == cudaSuccess);
  CHECK(cudaFree(p) == cudaSuccess);
  fail_allocation(2);
  CHECK(cudaMalloc(&p, 16) == cudaSuccess);
  CHECK(cudaMallocHost(&p, 16) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocHost(&p, 16) == cudaSuccess);
  auto left = leaks();
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{"device 0: 16 bytes", "pinned: 16 bytes"});
  lose_device(0);
  CHECK(cudaDeviceSynchronize() == cudaErrorUnknown);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaSetDevice(0) == cudaErrorUnknown);
}

TEST_CASE("two devices: memory, streams and events are of one of them") {
  for (Streams mode : kModes) {
    reset(mode, 2);
    int count = 0;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count == 2);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    char* a = device_memory(8);
    cudaStream_t s = stream();
    CHECK(cudaMemset(a, 9, 8) == cudaSuccess);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    char* b = device_memory(8);
    CHECK(enqueue(launch_of([] {}), s) == cudaErrorInvalidResourceHandle);
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event) == cudaSuccess);
    CHECK(cudaEventRecord(event, s) == cudaErrorInvalidResourceHandle);
    CHECK(cudaMemcpyAsync(b, a, 8, cudaMemcpyDeviceToDevice, s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    char host[8] = {};
    CHECK(cudaMemcpy(host, b, 8, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(host[7] == 9);
    CHECK(find_range(b + 7).device == 1);
    CHECK(find_range(b + 8).memory == Memory::kNone);
  }
}

TEST_CASE("use after free: by a call, and by an operation that runs too late") {
  reset(Streams::kLazy);
  cudaStream_t s = stream();
  char* p = device_memory(8);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaFree(p) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(p, 0, 8, s) == cudaErrorInvalidValue);
  CHECK(device_memory(8) != p);
  void* q = nullptr;
  cudaStream_t other = stream();
  CHECK(cudaMallocAsync(&q, 8, s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(cudaMemsetAsync(q, 0, 8, other) == cudaSuccess);
  CHECK(cudaFreeAsync(q, s) == cudaSuccess);  // nothing orders it behind the memset
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(other) == cudaErrorIllegalAddress);
}

TEST_CASE("a capture is isolated, and forbids what would break it") {
  reset(Streams::kLazy);
  cudaStream_t s = stream(), outside = stream();
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaEventRecord(event, outside) == cudaSuccess);
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(s, event, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
  void* p;
  CHECK(cudaMalloc(&p, 8) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaMalloc(&p, 8) == cudaSuccess);
}

TEST_CASE("a call inside a host function is refused") {
  reset(Streams::kLazy);
  cudaStream_t s = stream();
  cudaError_t inside = cudaSuccess;
  const auto body = [](void* out) {
    void* p;
    *static_cast<cudaError_t*>(out) = cudaMalloc(&p, 8);
  };
  CHECK(cudaLaunchHostFunc(s, body, &inside) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(inside == cudaErrorNotPermitted);
}

}  // namespace headrace::simt

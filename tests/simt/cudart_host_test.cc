// The host's side of CUDA by the toolkit's headers alone: also links against the real libcudart.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/simt/host_programs.h"

namespace programs = headrace::simt::programs;

namespace {

bool no_device() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return false;
  MESSAGE("skipped: no device");
  return true;
}

}  // namespace

TEST_CASE("good programs give the right bytes") {
  if (no_device()) return;
  CHECK(programs::hand_over(true));
  CHECK(programs::reuse_source(true));
  CHECK(programs::read_result(true));
  CHECK(programs::join_in_graph(true));
  CHECK(programs::use_fresh_memory(true));
  CHECK(programs::copy_whole(true) == cudaSuccess);
  CHECK(programs::set_on_stream(true) == cudaSuccess);
  CHECK(programs::read_on_host(true) == 8);
}

TEST_CASE("an error of a call is told once, and the next call works") {
  if (no_device()) return;
  char from = 0, to = 0;
  const auto no_kind = static_cast<cudaMemcpyKind>(99);
  CHECK(cudaMemcpy(&to, &from, 1, no_kind) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(programs::copy_whole(true) == cudaSuccess);
}

TEST_CASE("memory is counted, and more than there is is refused") {
  if (no_device()) return;
  size_t before = 0, after = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
  void *p = nullptr, *too_much = nullptr;
  const size_t bytes = 64 << 20;
  REQUIRE(cudaMalloc(&p, bytes) == cudaSuccess);
  CHECK(reinterpret_cast<uintptr_t>(p) % 256 == 0);
  REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(before - after >= bytes);
  CHECK(cudaMalloc(&too_much, total) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  cudaPointerAttributes of{};
  REQUIRE(cudaPointerGetAttributes(&of, static_cast<char*>(p) + 5) == cudaSuccess);
  CHECK(of.type == cudaMemoryTypeDevice);
  CHECK(of.device == 0);
  REQUIRE(cudaPointerGetAttributes(&of, &before) == cudaSuccess);
  CHECK(of.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(after + bytes / 2 > before);  // others may use the device, too
}

TEST_CASE("events: waited for, asked for, and the time between them") {
  if (no_device()) return;
  cudaStream_t stream;
  cudaEvent_t a, b, never, untimed;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaEventCreate(&a) == cudaSuccess);
  REQUIRE(cudaEventCreate(&b) == cudaSuccess);
  REQUIRE(cudaEventCreate(&never) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventQuery(never) == cudaSuccess);  // never recorded: nothing to wait for
  REQUIRE(cudaEventRecord(a, stream) == cudaSuccess);
  bool ran = false;
  const auto set = [](void* flag) { *static_cast<bool*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(stream, set, &ran) == cudaSuccess);
  REQUIRE(cudaEventRecord(b, stream) == cudaSuccess);
  REQUIRE(cudaEventRecord(untimed, stream) == cudaSuccess);
  cudaError_t asked;
  while ((asked = cudaEventQuery(b)) == cudaErrorNotReady) {
  }
  CHECK(asked == cudaSuccess);
  CHECK(ran);
  CHECK(cudaEventSynchronize(untimed) == cudaSuccess);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaSuccess);
  CHECK(ms >= 0);
  CHECK(cudaEventElapsedTime(&ms, a, untimed) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  for (cudaEvent_t e : {a, b, never, untimed}) CHECK(cudaEventDestroy(e) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("a graph is launched often") {
  if (no_device()) return;
  cudaStream_t stream;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  unsigned char *device = nullptr, *host = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), 64) == cudaSuccess);
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host), 64) == cudaSuccess);
  const auto capture = [&](int value) {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaMemsetAsync(device, value, 64, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(host, device, 64, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    return graph;
  };
  cudaGraph_t one = capture(1);
  cudaGraphExec_t exec;
  REQUIRE(cudaGraphInstantiate(&exec, one, 0) == cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    std::memset(host, 0, 64);
    REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(host[63] == 1);
  }
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  CHECK(cudaGraphDestroy(one) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFreeHost(host) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("a capture that some stream did not join is refused") {
  if (no_device()) return;
  cudaStream_t main, side;
  cudaEvent_t fork;
  void* p;
  REQUIRE(cudaStreamCreate(&main) == cudaSuccess);
  REQUIRE(cudaStreamCreate(&side) == cudaSuccess);
  REQUIRE(cudaEventCreate(&fork) == cudaSuccess);
  REQUIRE(cudaMalloc(&p, 64) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaEventRecord(fork, main) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side, fork, 0) == cudaSuccess);
  CHECK(cudaMemsetAsync(p, 1, 64, side) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(main, &graph) == cudaErrorStreamCaptureUnjoined);
  cudaStreamCaptureStatus status;
  REQUIRE(cudaStreamIsCapturing(side, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  cudaGetLastError();
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaEventDestroy(fork) == cudaSuccess);
  CHECK(cudaStreamDestroy(main) == cudaSuccess);
  CHECK(cudaStreamDestroy(side) == cudaSuccess);
}

#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

// Ranks as processes of their own, and what they do with CUDA and NCCL. The process that forks must
// not have touched either, where these are the real ones.
namespace headrace::simt {

inline constexpr int kHangSeconds = 60;  // then a rank that hangs is ended
inline constexpr auto kStuckAfter = std::chrono::milliseconds(300);
inline constexpr auto kDeadline = std::chrono::seconds(30);

// In a rank: ends the process, with the place.
inline void expect(bool held, int line = __builtin_LINE()) {
  if (held) return;
  std::fprintf(stderr, "process %d: line %d did not hold\n", int(getpid()), line);
  _exit(1);
}

// What ranks share: the ids of their communicators, and flags by number.
struct Shared {
  ncclUniqueId ids[4];
  std::atomic<int> flags[8];

  void await(int flag, int value = 1) const {
    while (flags[flag].load() < value) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The id with this number, which rank 0 makes.
  ncclUniqueId id(int rank, int number = 0) {
    if (rank == 0) {
      expect(ncclGetUniqueId(&ids[number]) == ncclSuccess);
      flags[4 + number] = 1;
    }
    await(4 + number);
    return ids[number];
  }
};

// How each rank ended: its exit status, or 1000 and the signal.
inline std::vector<int> run_ranks(int count, const std::function<void(int, Shared&)>& body) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared* shared = new (memory) Shared{};
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangSeconds);
      body(rank, *shared);
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<int> ended;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ended.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
  }
  munmap(memory, sizeof(Shared));
  return ended;
}

inline ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// Polls until the last call counts as done, or is stuck.
inline ncclResult_t settle(ncclComm_t comm, std::chrono::milliseconds within = kDeadline) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
    if (ncclResult_t wrong = ncclCommGetAsyncError(comm, &state)) return wrong;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

// Asks until the stream is empty; false: not within the time, or an error of the communicator.
inline bool drained(cudaStream_t stream, ncclComm_t comm,
                    std::chrono::milliseconds within = kDeadline) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  cudaError_t state;
  while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
    ncclResult_t error = ncclSuccess;
    if (comm && (ncclCommGetAsyncError(comm, &error) || (error && error != ncclInProgress))) {
      return false;
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state == cudaSuccess;
}

// One end: a stream, a communicator that does not block, and memory of one device.
struct End {
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  char* memory = nullptr;
  int rank, peer;

  End(int own, Shared& shared, size_t bytes, int number = 0) : rank(own), peer(1 - own) {
    expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    expect(cudaMalloc(reinterpret_cast<void**>(&memory), bytes) == cudaSuccess);
    expect(cudaMemset(memory, 10 + own, bytes) == cudaSuccess);
    expect(cudaDeviceSynchronize() == cudaSuccess);
    ncclConfig_t config = not_blocking();
    const ncclResult_t begun =
        ncclCommInitRankConfig(&comm, 2, shared.id(own, number), own, &config);
    expect(begun == ncclInProgress || begun == ncclSuccess);
    expect(settle(comm) == ncclSuccess);
  }
  // Calls and polls to success.
  void call(ncclResult_t result) const {
    expect(result == ncclSuccess || result == ncclInProgress);
    expect(settle(comm) == ncclSuccess);
  }
  void send(size_t bytes) const { call(ncclSend(memory, bytes, ncclUint8, peer, comm, stream)); }
  void receive(size_t bytes) const { call(ncclRecv(memory, bytes, ncclUint8, peer, comm, stream)); }
  char byte(size_t at) const {
    char value = 0;
    expect(cudaMemcpy(&value, memory + at, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    return value;
  }
  // The good end of life.
  void finish() const {
    expect(drained(stream, comm));
    call(ncclCommFinalize(comm));
    expect(ncclCommDestroy(comm) == ncclSuccess);
    expect(cudaFree(memory) == cudaSuccess);
    expect(cudaStreamDestroy(stream) == cudaSuccess);
  }
};

}  // namespace headrace::simt

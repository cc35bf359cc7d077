// NCCL between two processes by the toolkit's headers alone: also links against the real libnccl.
#include <doctest/doctest.h>

#include <string>

#include "tests/simt/nccl_ranks.h"

namespace headrace::simt {
namespace {

constexpr int kSkipped = 77;
constexpr size_t kPage = 12 * 1024;
constexpr int kPages = 64;

// Two ranks on a device each; the stand-in is told by the environment that it has two.
void run_two(const std::function<void(int, Shared&)>& body) {
  const auto ended = run_ranks(2, [&](int rank, Shared& shared) {
    setenv("HEADRACE_SIMT_DEVICES", "2", 1);
    setenv("HEADRACE_SIMT_STREAMS", "threaded", 1);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) _exit(kSkipped);
    expect(cudaSetDevice(rank) == cudaSuccess);
    body(rank, shared);
  });
  if (ended[0] == kSkipped) {
    MESSAGE("skipped: needs two devices");
    return;
  }
  CHECK(ended == std::vector<int>{0, 0});
}

}  // namespace

TEST_CASE("pages of one group arrive, each at its own place") {
  run_two([](int rank, Shared& shared) {
    const End end(rank, shared, kPage * kPages);
    ncclGroupStart();
    for (int i = 0; i < kPages; ++i) {
      if (rank == 0) {
        expect(cudaMemsetAsync(end.memory + i * kPage, i, kPage, end.stream) == cudaSuccess);
        ncclSend(end.memory + i * kPage, kPage, ncclUint8, 1, end.comm, end.stream);
      } else {  // in another order of addresses
        ncclRecv(end.memory + (kPages - 1 - i) * kPage, kPage, ncclUint8, 0, end.comm, end.stream);
      }
    }
    end.call(ncclGroupEnd());
    expect(drained(end.stream, end.comm));
    for (int i = 0; rank == 1 && i < kPages; ++i) {
      expect(end.byte((kPages - 1 - i) * kPage) == i);
      expect(end.byte((kPages - i) * kPage - 1) == i);
    }
    end.finish();
  });
}

TEST_CASE("both ways at once in a group, and again, in order") {
  run_two([](int rank, Shared& shared) {
    const size_t half = 1 << 20;
    const End end(rank, shared, 2 * half);
    for (int i = 0; i < 3; ++i) {
      expect(cudaMemsetAsync(end.memory, 10 * i + rank, half, end.stream) == cudaSuccess);
      ncclGroupStart();
      ncclSend(end.memory, half, ncclUint8, end.peer, end.comm, end.stream);
      ncclRecv(end.memory + half, half, ncclUint8, end.peer, end.comm, end.stream);
      end.call(ncclGroupEnd());
      expect(drained(end.stream, end.comm));
      expect(end.byte(2 * half - 1) == 10 * i + end.peer);
    }
    end.finish();
  });
}

TEST_CASE("two communicators, one for each direction, called in the same order") {
  run_two([](int rank, Shared& shared) {
    const End there(rank, shared, 4096), back(rank, shared, 4096, 1);
    rank == 0 ? there.send(4096) : there.receive(4096);
    rank == 0 ? back.receive(4096) : back.send(4096);
    expect(drained(there.stream, there.comm));
    expect(drained(back.stream, back.comm));
    expect(there.byte(4095) == 10);
    expect(back.byte(0) == 11);
    there.finish();
    back.finish();
  });
}

TEST_CASE("a communicator that blocks, and what it says of itself") {
  run_two([](int rank, Shared& shared) {
    ncclComm_t comm;
    int count = 0, own = -1, version = 0;
    expect(ncclCommInitRank(&comm, 2, shared.id(rank), rank) == ncclSuccess);
    expect(ncclCommCount(comm, &count) == ncclSuccess && count == 2);
    expect(ncclCommUserRank(comm, &own) == ncclSuccess && own == rank);
    expect(ncclGetVersion(&version) == ncclSuccess && version > 0);
    expect(std::string(ncclGetErrorString(ncclInvalidUsage)) == "invalid usage");
    expect(ncclCommFinalize(comm) == ncclSuccess);
    expect(ncclCommDestroy(comm) == ncclSuccess);
  });
}

TEST_CASE("a rank that never comes: in progress until the abort") {
  run_two([](int rank, Shared& shared) {
    const ncclUniqueId id = shared.id(rank);
    if (rank == 1) return;
    ncclComm_t comm;
    ncclConfig_t config = not_blocking();
    expect(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    expect(settle(comm, kStuckAfter) == ncclInProgress);
    expect(ncclCommAbort(comm) == ncclSuccess);
  });
}

}  // namespace headrace::simt

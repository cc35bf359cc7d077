// Mistakes and faults between two processes, as only the stand-in can make them.
#include <doctest/doctest.h>

#include "tests/simt/cudart/control.h"
#include "tests/simt/nccl/control.h"
#include "tests/simt/nccl_ranks.h"

namespace headrace::simt {
namespace {

constexpr Streams kModes[] = {Streams::kEager, Streams::kLazy, Streams::kThreaded};
constexpr size_t kBytes = 1 << 20;
constexpr int kKilled = 9;

using Ended = std::vector<int>;

Ended run_two(Streams mode, const std::function<void(int, Shared&)>& body) {
  reset(Streams::kLazy);  // a fork takes no device thread along
  return run_ranks(2, [&](int rank, Shared& shared) {
    reset(mode);
    body(rank, shared);
  });
}

// Both ranks end well, and say nothing, in all modes.
void good(const std::function<void(int, Shared&)>& body) {
  for (Streams mode : kModes) {
    CHECK(run_two(mode, [&](int rank, Shared& shared) {
            body(rank, shared);
            expect(take_reports().empty());
            expect(leaks().empty());
            expect(nccl::communicators() == 0);
          }) == Ended{0, 0});
  }
}

void planted(const std::function<void(int, Shared&)>& body) {
  for (Streams mode : kModes) {
    const Ended ended = run_two(mode, body);
    CHECK(ended == Ended{0, 0});
  }
}

bool stuck(const End& end) { return !drained(end.stream, end.comm, kStuckAfter); }

nccl::Behaviour with(bool nccl::Behaviour::*what) {
  nccl::Behaviour behaviour;
  behaviour.*what = true;
  return behaviour;
}

// Ranks that meet before they end, so that none is seen to die.
void meet(Shared& shared, int flag) {
  ++shared.flags[flag];
  shared.await(flag, 2);
}

}  // namespace

TEST_CASE("a receive that nobody posts: the send is never over") {
  const auto body = [](bool posted) {
    return [=](int rank, Shared& shared) {
      const End end(rank, shared, kBytes);
      if (rank == 0) end.send(16);  // however small
      if (rank == 1 && posted) end.receive(16);
      if (posted) return end.finish();
      expect(rank == 1 || stuck(end));
      meet(shared, 0);
      expect(ncclCommAbort(end.comm) == ncclSuccess);
      expect(cudaStreamSynchronize(end.stream) == cudaSuccess);  // the abort lets go of it
    };
  };
  good(body(true));
  planted(body(false));
}

TEST_CASE("crossing sends: fine in a group, stuck one by one") {
  const auto body = [](bool grouped) {
    return [=](int rank, Shared& shared) {
      const End end(rank, shared, 32);
      const auto half = [&](ncclResult_t result) {
        if (!grouped) end.call(result);
      };
      if (grouped) ncclGroupStart();
      half(ncclSend(end.memory, 16, ncclUint8, end.peer, end.comm, end.stream));
      half(ncclRecv(end.memory + 16, 16, ncclUint8, end.peer, end.comm, end.stream));
      if (grouped) end.call(ncclGroupEnd());
      if (grouped) return end.finish();
      expect(stuck(end));
      meet(shared, 0);
      expect(ncclCommAbort(end.comm) == ncclSuccess);
    };
  };
  good(body(true));
  planted(body(false));
}

TEST_CASE("one group on two streams begins behind both and is behind both") {
  good([](int rank, Shared& shared) {
    const End end(rank, shared, 2 * kBytes);
    cudaStream_t other;
    expect(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    expect(cudaMemsetAsync(end.memory, 20 + rank, kBytes, other) == cudaSuccess);
    ncclGroupStart();
    ncclRecv(end.memory + kBytes, kBytes, ncclUint8, end.peer, end.comm, end.stream);
    ncclSend(end.memory, kBytes, ncclUint8, end.peer, end.comm, other);
    end.call(ncclGroupEnd());
    expect(drained(other, end.comm));
    expect(end.byte(2 * kBytes - 1) == 20 + end.peer);
    expect(cudaStreamDestroy(other) == cudaSuccess);
    end.finish();
  });
}

TEST_CASE("two communicators called in opposite orders: stuck on a narrow device") {
  const auto body = [](bool same_order, bool concurrent) {
    return [=](int rank, Shared& shared) {
      nccl::Behaviour behaviour;
      behaviour.concurrent = concurrent;
      nccl::set_behaviour(behaviour);
      const End a(rank, shared, 16), b(rank, shared, 16, 1);
      const bool first = same_order || rank == 0;
      for (const End* end : {first ? &a : &b, first ? &b : &a}) {
        rank == 0 ? end->send(16) : end->receive(16);
      }
      if (same_order || concurrent) {
        expect(drained(a.stream, a.comm) && drained(b.stream, b.comm));
        a.finish();
        return b.finish();
      }
      expect(stuck(a) && stuck(b));
      meet(shared, 0);
      expect(ncclCommAbort(a.comm) == ncclSuccess);
      expect(ncclCommAbort(b.comm) == ncclSuccess);
    };
  };
  good(body(true, false));
  planted(body(false, false));
  CHECK(run_two(Streams::kThreaded, body(false, true)) == Ended{0, 0});
}

TEST_CASE("a call that does not block and was not polled: nothing moves, and the next is refused") {
  planted([](int rank, Shared& shared) {
    const End end(rank, shared, 16);
    const auto half = [&] {
      return rank == 0 ? ncclSend(end.memory, 16, ncclUint8, 1, end.comm, end.stream)
                       : ncclRecv(end.memory, 16, ncclUint8, 0, end.comm, end.stream);
    };
    expect(half() == ncclInProgress);
    expect(cudaStreamSynchronize(end.stream) == cudaSuccess);
    expect(rank == 0 || end.byte(0) == 11);  // what it was
    expect(half() == ncclInvalidArgument);
    expect(settle(end.comm) == ncclSuccess);  // now it is launched
    expect(drained(end.stream, end.comm));
    expect(end.byte(0) == 10);
    end.finish();
  });
}

TEST_CASE("after an abort or a destroy the communicator is no more") {
  planted([](int rank, Shared& shared) {
    const End end(rank, shared, 16), other(rank, shared, 16, 1);
    meet(shared, 0);
    expect(ncclCommAbort(end.comm) == ncclSuccess);
    expect(ncclCommDestroy(other.comm) == ncclSuccess);
    for (ncclComm_t gone : {end.comm, other.comm}) {
      ncclResult_t state;
      expect(ncclSend(end.memory, 1, ncclUint8, end.peer, gone, end.stream) == ncclInvalidArgument);
      expect(ncclCommGetAsyncError(gone, &state) == ncclInvalidArgument);
      expect(ncclCommAbort(gone) == ncclInvalidArgument);
    }
    expect(nccl::communicators() == 0);
  });
}

TEST_CASE("a peer that dies in mid transfer: an error, and the stream is stuck until the abort") {
  for (Streams mode : kModes) {
    const auto ended = run_two(mode, [](int rank, Shared& shared) {
      const End end(rank, shared, kBytes);
      nccl::Behaviour behaviour;
      behaviour.die_after = kBytes / 2;
      if (rank == 0) nccl::set_behaviour(behaviour);
      if (rank == 0) {
        end.send(kBytes);
        drained(end.stream, end.comm);  // does not live to its end
      }
      expect(ncclRecv(end.memory, kBytes, ncclUint8, 0, end.comm, end.stream) == ncclInProgress);
      settle(end.comm);  // an eager stream may already know
      expect(!drained(end.stream, end.comm));
      ncclResult_t state;
      expect(ncclCommGetAsyncError(end.comm, &state) == ncclSuccess);
      expect(state == ncclRemoteError);
      expect(ncclSend(end.memory, 1, ncclUint8, 0, end.comm, end.stream) == ncclRemoteError);
      expect(stuck(end));
      expect(ncclCommAbort(end.comm) == ncclSuccess);
      expect(cudaStreamSynchronize(end.stream) == cudaSuccess);
    });
    CHECK(ended == Ended{kKilled, 0});
  }
}

TEST_CASE("a silent death: no error, for ever; only a deadline tells") {
  const auto ended = run_two(Streams::kThreaded, [](int rank, Shared& shared) {
    nccl::set_behaviour(with(&nccl::Behaviour::silent));
    const End end(rank, shared, 16);
    if (rank == 0) _exit(kKilled);
    end.receive(16);
    expect(stuck(end));
    ncclResult_t state;
    expect(ncclCommGetAsyncError(end.comm, &state) == ncclSuccess);
    expect(state == ncclSuccess);
    expect(ncclCommAbort(end.comm) == ncclSuccess);
    expect(cudaStreamSynchronize(end.stream) == cudaSuccess);
  });
  CHECK(ended == Ended{kKilled, 0});
}

TEST_CASE("counts and types that differ: an error of the receiver") {
  for (bool count_differs : {true, false}) {
    planted([=](int rank, Shared& shared) {
      const End end(rank, shared, 64);
      const size_t count = count_differs && rank == 1 ? 15 : 16;
      const auto type = !count_differs && rank == 1 ? ncclInt8 : ncclUint8;
      expect((rank == 0
                  ? ncclSend(end.memory, count, type, 1, end.comm, end.stream)
                  : ncclRecv(end.memory, count, type, 0, end.comm, end.stream)) == ncclInProgress);
      settle(end.comm);  // an eager stream may already know
      expect(stuck(end));
      meet(shared, 0);
      ncclResult_t state;
      expect(ncclCommGetAsyncError(end.comm, &state) == ncclSuccess);
      expect(state == (rank == 0 ? ncclSuccess : ncclInvalidUsage));
      expect(ncclCommAbort(end.comm) == ncclSuccess);
    });
  }
}

TEST_CASE(
    "host memory, memory past an allocation, no such peer, oneself, stream 0: refused at once") {
  planted([](int rank, Shared& shared) {
    const End end(rank, shared, 64);
    char host[64];
    const auto send = [&](void* data, size_t bytes, int peer, cudaStream_t stream) {
      return ncclSend(data, bytes, ncclUint8, peer, end.comm, stream);
    };
    expect(send(host, 64, end.peer, end.stream) == ncclInvalidArgument);
    expect(send(end.memory, 65, end.peer, end.stream) == ncclInvalidArgument);
    expect(send(end.memory, 64, 2, end.stream) == ncclInvalidArgument);
    expect(send(end.memory, 64, rank, end.stream) == ncclInvalidArgument);
    expect(send(end.memory, 64, end.peer, nullptr) == ncclInvalidArgument);
    ncclGroupStart();
    send(host, 64, end.peer, end.stream);
    expect(ncclGroupEnd() == ncclInvalidArgument);
    expect(ncclGroupEnd() == ncclInvalidUsage);
    meet(shared, 0);
    end.finish();
  });
}

TEST_CASE("ranks of different versions, a rank twice, another number of ranks") {
  planted([](int rank, Shared& shared) {
    nccl::Behaviour behaviour;
    behaviour.version = 22700 + rank;
    nccl::set_behaviour(behaviour);
    ncclComm_t comm, again;
    ncclConfig_t config = not_blocking();
    expect(ncclCommInitRankConfig(&comm, 2, shared.id(rank), rank, &config) == ncclInProgress);
    expect(settle(comm) == ncclInvalidUsage);
    meet(shared, 0);
    expect(ncclCommAbort(comm) == ncclSuccess);
    nccl::set_behaviour({});
    const int size = 2 + rank;
    const ncclUniqueId id = shared.id(rank, 1);
    expect(ncclCommInitRankConfig(&comm, size, id, rank, &config) == ncclInProgress);
    expect(ncclCommInitRankConfig(&again, size, id, rank, &config) == ncclInvalidUsage);
    expect(settle(comm) == ncclInvalidUsage);
    meet(shared, 1);
    expect(ncclCommAbort(comm) == ncclSuccess);
  });
}

TEST_CASE("stalls: in init, in a send, in the abort") {
  planted([](int rank, Shared& shared) {
    ncclComm_t comm;
    ncclConfig_t config = not_blocking();
    if (rank == 0) nccl::set_behaviour(with(&nccl::Behaviour::stall_init));
    const ncclUniqueId id = shared.id(rank, 1);
    expect(nccl::unused_ids() == (rank == 0 ? 1 : 0));
    expect(ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclInProgress);
    expect(nccl::unused_ids() == 0);
    expect(settle(comm, kStuckAfter) == ncclInProgress);
    expect(ncclCommAbort(comm) == ncclSuccess);
    nccl::set_behaviour({});

    const End end(rank, shared, kBytes);
    if (rank == 0) nccl::set_behaviour(with(&nccl::Behaviour::stall_send));
    rank == 0 ? end.send(kBytes) : end.receive(kBytes);
    expect(stuck(end));
    meet(shared, 0);
    nccl::set_behaviour(with(&nccl::Behaviour::stall_abort));
    std::atomic<bool> aborted = false;
    std::thread side([&] { aborted = ncclCommAbort(end.comm) == ncclSuccess; });
    std::this_thread::sleep_for(kStuckAfter);
    expect(!aborted);
    nccl::set_behaviour({});
    side.join();
    expect(aborted);
  });
}

TEST_CASE("a graph launches its group again and again") {
  good([](int rank, Shared& shared) {
    const End end(rank, shared, 16);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    expect(cudaStreamBeginCapture(end.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    rank == 0 ? end.send(16) : end.receive(16);
    expect(cudaStreamEndCapture(end.stream, &graph) == cudaSuccess);
    expect(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    for (int i = 1; i <= 3; ++i) {
      expect(cudaMemsetAsync(end.memory, 10 * i + rank, 16, end.stream) == cudaSuccess);
      expect(cudaGraphLaunch(exec, end.stream) == cudaSuccess);
      expect(drained(end.stream, end.comm));
      expect(end.byte(15) == 10 * i);
    }
    expect(cudaGraphExecDestroy(exec) == cudaSuccess);
    expect(cudaGraphDestroy(graph) == cudaSuccess);
    end.finish();
  });
}

}  // namespace headrace::simt

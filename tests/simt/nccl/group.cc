#include <algorithm>
#include <cstring>
#include <map>

#include "tests/simt/cudart/state.h"
#include "tests/simt/nccl/comm.h"

namespace headrace::simt::nccl {
namespace {

struct Call {
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream;
  Transfer transfer;
};

thread_local int depth = 0;
thread_local std::vector<Call> calls;
thread_local ncclResult_t first_error = ncclSuccess;

// Groups of one device run in the order of their calls.
std::map<int, std::shared_ptr<Record>> last_of_device;

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

// What one group moves on one communicator; by value, so that a graph launches a fresh one.
struct Group {
  std::shared_ptr<ncclComm> comm;
  std::vector<Transfer> transfers;
  bool counted = true;  // by the communicator; not one that a graph launches

  // The first of each peer and direction may move: these are matched in their order.
  bool first_of_its_kind(size_t i) const {
    return std::none_of(transfers.begin(), transfers.begin() + long(i), [&](const Transfer& t) {
      return t.peer == transfers[i].peer && t.send == transfers[i].send;
    });
  }

  Step end() {
    if (counted) comm->groups -= 1;
    return Step::kDone;
  }

  Step step() {
    Library& lib = library();
    const Lock lock(lib.mutex);
    if (comm->aborted) return end();
    bool moved = false;
    for (size_t i = 0; i < transfers.size() && !comm->error;) {
      Transfer& t = transfers[i];
      const int fd = (t.send ? comm->to : comm->from)[t.peer];
      const auto result =
          first_of_its_kind(i) ? t.step(fd, lib.behaviour) : Transfer::Result::kStuck;
      moved |= result == Transfer::Result::kMoved || result == Transfer::Result::kDone;
      if (result == Transfer::Result::kMismatch) {
        comm->error = refuse(ncclInvalidUsage, "a receive of another count or type than the send");
      } else if (result == Transfer::Result::kGone && !lib.behaviour.silent) {
        comm->error = refuse(ncclRemoteError, "rank " + std::to_string(t.peer) + " is gone");
      }
      if (result == Transfer::Result::kDone) {
        transfers.erase(transfers.begin() + long(i));
      } else {
        ++i;
      }
    }
    if (transfers.empty()) return end();
    return moved ? Step::kMoved : Step::kPending;  // after an error until the abort, as on a device
  }
};

ncclResult_t launch(Group group, const std::vector<cudaStream_t>& streams, bool serial) {
  Runtime& rt = runtime();
  simt::Lock lock(rt.mutex);
  const auto first = find_stream(rt, streams[0]);
  if (!first) return ncclInvalidArgument;
  group.counted = !first->capture;
  if (group.counted) group.comm->groups += 1;
  const int device = group.comm->device;
  std::shared_ptr<Record>& last = last_of_device[device];
  const auto done = std::make_shared<Record>();
  cudaError_t error = cudaSuccess;
  const auto put = [&](cudaStream_t stream, Op op) {
    if (!error) error = submit(rt, lock, stream, std::move(op));
  };
  // A group on several streams begins behind all of them, and all of them go on behind it.
  for (size_t i = 1; i < streams.size(); ++i) {
    const auto there = std::make_shared<Record>();
    put(streams[i], {"group begins", {}, {}, there});
    put(streams[0], {"group waits", {}, there, {}});
  }
  put(streams[0],
      {"group", [group]() mutable { return group.step(); }, serial ? last : nullptr, done});
  for (size_t i = 1; i < streams.size(); ++i) put(streams[i], {"group ends", {}, done, {}});
  if (error && group.counted) group.comm->groups -= 1;
  if (!error && group.counted) last = done;
  return error ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t end_of(const std::shared_ptr<ncclComm>& comm, const std::vector<Call>& group_calls) {
  Group group{comm, {}};
  std::vector<cudaStream_t> streams;
  for (const Call& call : group_calls) {
    if (call.comm != comm) continue;
    group.transfers.push_back(call.transfer);
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) {
      streams.push_back(call.stream);
    }
  }
  const bool serial = !library().behaviour.concurrent;
  const auto go = [=] { return launch(group, streams, serial); };
  if (comm->blocking) return go();
  comm->deferred.push_back(go);
  comm->polls = kPolls;
  return ncclInProgress;
}

ncclResult_t end_group() {
  const std::vector<Call> ended = std::exchange(calls, {});
  ncclResult_t result = std::exchange(first_error, ncclSuccess);
  if (result) return result;
  std::vector<std::shared_ptr<ncclComm>> seen;
  for (const Call& call : ended) {
    if (std::find(seen.begin(), seen.end(), call.comm) != seen.end()) continue;
    seen.push_back(call.comm);
    const ncclResult_t one = end_of(call.comm, ended);
    if (one && (!result || result == ncclInProgress)) result = one;
  }
  return result;
}

ncclResult_t check(const Library& lib, const ncclComm& comm, const Transfer& t, size_t size,
                   cudaStream_t stream) {
  if (ncclResult_t wrong = ready(lib, comm)) return wrong;
  Runtime& rt = runtime();
  simt::Lock lock(rt.mutex);
  const auto at = find(rt, t.data);
  const bool ours = at != rt.memory.end() && at->second.memory == Memory::kDevice &&
                    at->second.device == comm.device && inside(rt, t.data, t.bytes);
  if (size && t.peer >= 0 && t.peer < comm.size && t.peer != comm.rank && (ours || !t.bytes) &&
      find_stream(rt, stream)) {
    return ncclSuccess;
  }
  rt.reports.push_back("nccl: a transfer of what is not this device's memory, or to no other rank");
  return ncclInvalidArgument;
}

ncclResult_t add(ncclComm_t handle, bool send, void* data, size_t count, ncclDataType_t type,
                 int peer, cudaStream_t stream) {
  Library& lib = library();
  const Lock lock(lib.mutex);
  const auto comm = find(lib, handle);
  const size_t size = size_of(type);
  const Transfer transfer{send, static_cast<char*>(data), count * size, int(type), peer, 0};
  const ncclResult_t wrong = comm ? check(lib, *comm, transfer, size, stream) : ncclInvalidArgument;
  if (!wrong) calls.push_back({comm, stream, transfer});
  if (depth) {
    if (!first_error) first_error = wrong;
    return wrong;
  }
  return wrong ? wrong : end_group();
}

}  // namespace
}  // namespace headrace::simt::nccl

using namespace headrace::simt::nccl;

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, true, const_cast<void*>(data), count, type, peer, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, false, data, count, type, peer, stream);
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "the end of a group that did not begin");
  if (--depth) return ncclSuccess;
  const Lock lock(library().mutex);
  return end_group();
}

#include "tests/simt/nccl/comm.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <thread>

#include "tests/simt/cudart/state.h"

namespace headrace::simt::nccl {
namespace {

constexpr auto kPollEvery = std::chrono::microseconds(200);
constexpr char kIdMark[] = "headrace";  // in front of an id's random bytes
constexpr size_t kIdBytes = sizeof Hello::id;

Behaviour from_environment() {
  Behaviour b;
  const std::map<std::string, bool*> flags = {{"stall_init", &b.stall_init},
                                              {"stall_send", &b.stall_send},
                                              {"stall_abort", &b.stall_abort},
                                              {"silent", &b.silent},
                                              {"concurrent", &b.concurrent}};
  const char* text = std::getenv("HEADRACE_SIMT_NCCL");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size());
    const long value = equals < word.size() ? std::atol(word.c_str() + equals + 1) : 0;
    const std::string name = word.substr(0, equals);
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
    } else if (name == "version") {
      b.version = int(value);
    } else if (name == "die_after") {
      b.die_after = size_t(value);
    } else {
      std::abort();  // a behaviour that nobody knows would be one that nobody tests
    }
  }
  return b;
}

int version_of(const Library& lib) {
  return lib.behaviour.version ? lib.behaviour.version : NCCL_VERSION_CODE;
}

void fail(ncclComm& comm, ncclResult_t error, const std::string& why) {
  if (!comm.error) comm.error = refuse(error, why);
}

void take(Library& lib, ncclComm& comm, int fd, const Hello& hello) {
  if (hello.version != version_of(lib)) {
    fail(comm, ncclInvalidUsage, "ranks of different versions");
  } else if (hello.size != comm.size || hello.rank >= comm.size || comm.from[hello.rank] >= 0) {
    fail(comm, ncclInvalidUsage, "ranks that disagree on how many they are");
  } else {
    comm.from[hello.rank] = fd;
    return;
  }
  close(fd);
}

bool greet_peers(Library& lib, ncclComm& comm) {
  bool changed = false;
  Hello hello{{}, version_of(lib), comm.size, comm.rank};
  std::memcpy(hello.id, comm.id.data(), kIdBytes);
  for (int peer = 0; peer < comm.size; ++peer) {
    if (peer == comm.rank || comm.to[peer] >= 0) continue;
    const int fd = connect_to(comm.id, peer);
    if (fd < 0) continue;
    say(fd, hello);  // one that does not come shows as one that is gone
    comm.to[peer] = fd;
    changed = true;
  }
  return changed;
}

bool hear_peers(Library& lib, ncclComm& comm) {
  bool changed = false;
  for (int fd;
       (fd = accept4(comm.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    comm.unknown.push_back(fd);
  }
  for (size_t i = comm.unknown.size(); i-- > 0;) {
    const int fd = comm.unknown[i];
    Hello hello;
    const Heard heard = hear(fd, &hello);
    if (heard == Heard::kNotYet) continue;
    comm.unknown.erase(comm.unknown.begin() + long(i));
    changed = true;
    if (heard == Heard::kGone) {
      close(fd);
    } else {
      take(lib, comm, fd, hello);
    }
  }
  return changed;
}

// Waits without the mutex until the condition holds.
template <class Done>
void wait(Lock& lock, const Done& done) {
  while (!done()) {
    lock.unlock();
    std::this_thread::sleep_for(kPollEvery);
    lock.lock();
  }
}

ncclResult_t init(ncclComm_t* out, int size, const ncclUniqueId& id, int rank, bool blocking) {
  Library& lib = library();
  Lock lock(lib.mutex);
  if (!out || size < 1 || rank < 0 || rank >= size) {
    return refuse(ncclInvalidArgument, "no such rank");
  }
  if (std::memcmp(id.internal, kIdMark, sizeof kIdMark)) {
    return refuse(ncclInvalidArgument, "not an id of ncclGetUniqueId");
  }
  const auto comm = std::make_shared<ncclComm>();
  comm->id.assign(id.internal + sizeof kIdMark, kIdBytes);
  comm->rank = rank, comm->size = size, comm->blocking = blocking;
  comm->device = current_device();
  comm->to.assign(size, -1);
  comm->from.assign(size, -1);
  comm->listener = listen_as(comm->id, rank);
  if (comm->listener < 0) return refuse(ncclInvalidUsage, "a rank of this communicator twice");
  std::erase(lib.ids, comm->id);
  lib.live.push_back(comm);
  *out = comm.get();
  if (!blocking) return ncclInProgress;
  wait(lock,
       [&] { return step_init(lib, *comm), comm->connected || comm->error || comm->aborted; });
  return comm->error;
}

}  // namespace

Library& library() {
  // Never destroyed: a device thread may outlive main.
  static Library* const kLibrary = [] {
    auto* lib = new Library;
    lib->behaviour = from_environment();
    return lib;
  }();
  return *kLibrary;
}

Behaviour behaviour() {
  Lock lock(library().mutex);
  return library().behaviour;
}

void set_behaviour(const Behaviour& b) {
  Lock lock(library().mutex);
  library().behaviour = b;
}

size_t communicators() {
  Lock lock(library().mutex);
  return library().live.size();
}

size_t unused_ids() {
  Lock lock(library().mutex);
  return library().ids.size();
}

std::shared_ptr<ncclComm> find(const Library& lib, ncclComm_t handle) {
  for (const auto& comm : lib.live) {
    if (comm.get() == handle) return comm;
  }
  refuse(ncclInvalidArgument, "no communicator, or one that was aborted or destroyed");
  return nullptr;
}

ncclResult_t ready(const Library&, const ncclComm& comm) {
  if (comm.error) return comm.error;
  if (comm.connected && !comm.polls && !comm.finalized) return ncclSuccess;
  return refuse(ncclInvalidArgument, "a call before the last one was polled to its success");
}

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  Runtime& rt = runtime();
  simt::Lock lock(rt.mutex);
  rt.reports.push_back("nccl: " + why);
  return result;
}

void close_all(ncclComm& comm) {
  for (auto* fds : {&comm.to, &comm.from, &comm.unknown}) {
    for (int& fd : *fds) {
      if (fd >= 0) close(std::exchange(fd, -1));
    }
  }
  if (comm.listener >= 0) close(std::exchange(comm.listener, -1));
}

bool step_init(Library& lib, ncclComm& comm) {
  if (comm.connected || comm.error || comm.aborted || lib.behaviour.stall_init) return false;
  // Greeting comes last: who is refused by what it hears still tells the other end.
  const bool heard = hear_peers(lib, comm), greeted = greet_peers(lib, comm);
  const auto absent = [&](const std::vector<int>& fds) {
    return std::count(fds.begin(), fds.end(), -1);
  };
  comm.connected = absent(comm.to) == 1 && absent(comm.from) == 1;  // but itself
  return greeted || heard;
}

}  // namespace headrace::simt::nccl

using namespace headrace::simt::nccl;

namespace {

ncclResult_t forget(Library& lib, const std::shared_ptr<ncclComm>& comm) {
  std::erase(lib.live, comm);
  close_all(*comm);
  return ncclSuccess;
}

ncclResult_t tell(ncclComm_t handle, int ncclComm::*what, int* out) {
  Lock lock(library().mutex);
  const auto comm = find(library(), handle);
  if (!comm || !out) return ncclInvalidArgument;
  *out = (*comm).*what;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  Lock lock(library().mutex);
  if (!version) return ncclInvalidArgument;
  *version = version_of(library());
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (!id) return ncclInvalidArgument;
  *id = {};
  std::memcpy(id->internal, kIdMark, sizeof kIdMark);
  char* random = id->internal + sizeof kIdMark;
  if (getrandom(random, kIdBytes, 0) != ssize_t(kIdBytes)) return ncclSystemError;
  Lock lock(library().mutex);
  library().ids.emplace_back(random, kIdBytes);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const ncclConfig_t usual = NCCL_CONFIG_INITIALIZER;
  if (config && config->magic != usual.magic) {
    return refuse(ncclInvalidArgument, "a configuration without NCCL_CONFIG_INITIALIZER");
  }
  return init(out, size, id, rank, !config || config->blocking != 0);
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  return init(out, size, id, rank, true);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* out) {
  Library& lib = library();
  Lock lock(lib.mutex);
  const auto comm = find(lib, handle);
  if (!comm || !out) return ncclInvalidArgument;
  if (!comm->connected) step_init(lib, *comm);
  if (comm->polls && --comm->polls == 0) {
    for (const auto& launch : std::exchange(comm->deferred, {})) {
      const ncclResult_t result = launch();
      if (result && !comm->error) comm->error = result;
    }
  }
  const bool busy = !comm->connected || comm->polls || (comm->finalized && comm->groups);
  *out = comm->error ? comm->error : busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  Library& lib = library();
  Lock lock(lib.mutex);
  const auto comm = find(lib, handle);
  if (!comm) return ncclInvalidArgument;
  if (ncclResult_t wrong = ready(lib, *comm)) return wrong;
  comm->finalized = true;
  if (!comm->blocking) return comm->polls = kPolls, ncclInProgress;
  lock.unlock();
  headrace::simt::Runtime& rt = headrace::simt::runtime();
  headrace::simt::Lock running(rt.mutex);
  headrace::simt::wait_device(rt, running, comm->device);
  return comm->error;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  Library& lib = library();
  Lock lock(lib.mutex);
  const auto comm = find(lib, handle);
  if (!comm) return ncclInvalidArgument;
  if (comm->groups) return refuse(ncclInvalidUsage, "destroyed with transfers under way");
  return forget(lib, comm);
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Library& lib = library();
  Lock lock(lib.mutex);
  const auto comm = find(lib, handle);
  if (!comm) return ncclInvalidArgument;
  wait(lock, [&] { return !lib.behaviour.stall_abort; });
  comm->aborted = true;
  return forget(lib, comm);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* out) {
  return tell(comm, &ncclComm::size, out);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* out) {
  return tell(comm, &ncclComm::rank, out);
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const std::map<ncclResult_t, const char*> kTexts = {
      {ncclSuccess, "no error"},
      {ncclUnhandledCudaError, "unhandled cuda error"},
      {ncclSystemError, "unhandled system error"},
      {ncclInternalError, "internal error"},
      {ncclInvalidArgument, "invalid argument"},
      {ncclInvalidUsage, "invalid usage"},
      {ncclRemoteError, "remote process exited or there was a network error"},
      {ncclInProgress, "NCCL operation in progress"},
  };
  const auto found = kTexts.find(result);
  return found == kTexts.end() ? "unknown result code" : found->second;
}

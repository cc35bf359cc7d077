#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simt/nccl/control.h"

// Inside of the stand-in. One mutex guards all of it; it is taken before the runtime's mutex.
namespace headrace::simt::nccl {

// One half of a point-to-point transfer. A send is over when the other side has taken all of it,
// so no buffer hides an order that cannot work.
struct Transfer {
  enum class Result { kDone, kMoved, kStuck, kMismatch, kGone };

  bool send = false;
  char* data = nullptr;
  size_t bytes = 0;
  int type = 0;
  int peer = 0;
  size_t done = 0;  // of head, bytes and answer

  Result step(int fd, Behaviour& behaviour);
};

// A socket that listens at, or connects to, a rank of the communicator; -1 if it cannot.
int listen_as(const std::string& id, int rank);
int connect_to(const std::string& id, int rank);

struct Hello {
  char id[16];
  int version, size, rank;
};
bool say(int fd, const Hello&);
enum class Heard { kHello, kNotYet, kGone };
Heard hear(int fd, Hello*);

constexpr int kPolls = 2;  // the first answer to a poll is always "in progress"

using Lock = std::unique_lock<std::recursive_mutex>;

struct Library {
  std::recursive_mutex mutex;
  Behaviour behaviour;
  std::vector<std::shared_ptr<ncclComm>> live;
  std::vector<std::string> ids;
};

Library& library();
std::shared_ptr<ncclComm> find(const Library&, ncclComm_t);
// What a call on the communicator is answered before anything else: it must be ready.
ncclResult_t ready(const Library&, const ncclComm&);
ncclResult_t refuse(ncclResult_t, const std::string& why);
void close_all(ncclComm&);
bool step_init(Library&, ncclComm&);  // true: something changed

}  // namespace headrace::simt::nccl

struct ncclComm {
  std::string id;
  int rank = 0, size = 0, device = 0;
  bool blocking = true;
  bool connected = false, aborted = false, finalized = false;
  ncclResult_t error = ncclSuccess;
  int listener = -1;
  std::vector<int> to, from;  // sockets by rank; -1: not yet, or itself
  std::vector<int> unknown;   // connected to us, and has not said who it is
  int polls = 0;              // until the call before counts as done
  std::vector<std::function<ncclResult_t()>> deferred;  // what is launched then
  int groups = 0;                                       // launched, not over
};

#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/simt/cudart/control.h"
#include "tests/simt/launch.h"

// Inside of the stand-in runtime. One mutex guards all of it; one operation runs at a time in a
// process, without the mutex. The toolkit's opaque handles are ours to define.
namespace headrace::simt {

inline constexpr int kDevicesMax = 8;
inline constexpr size_t kArenaBytes = size_t{32} << 30;  // of addresses, so that reuse is late
inline constexpr size_t kMemoryMax = size_t{8} << 30;
inline constexpr size_t kSharedMax = 227 * 1024;

enum class Step { kDone, kMoved, kPending };  // pending: it waits for something outside

// A point in a stream, done once what is in front of it has run.
struct Record {
  bool done = false;
  double milliseconds = 0;
  std::weak_ptr<CUstream_st> stream;
};

struct Op {
  std::string what;
  std::function<Step()> step;         // without the runtime's mutex; copied for each graph launch
  std::shared_ptr<Record> after;      // runs only when this is done
  std::shared_ptr<Record> completes;  // done when this has run
  std::shared_ptr<std::vector<Launch>> launches{};  // dependent ones may still join
};

struct Capture;

// An asynchronous allocation is coming until its stream gets there; one to be freed is going.
enum class Life { kComing, kAlive, kGoing };

struct Allocation {
  Memory memory = Memory::kNone;
  int device = 0;
  size_t bytes = 0;
  Life life = Life::kAlive;
};

struct Device {
  char* arena = nullptr;
  size_t cursor = 0;      // the next allocation is looked for from here
  size_t high_water = 0;  // nothing beyond was ever handed out
  size_t total = size_t{1} << 30;
  size_t used = 0;
  cudaError_t sticky = cudaSuccess;
  bool held = false;
};

struct Runtime {
  std::mutex mutex;
  std::condition_variable moved;
  Streams mode = Streams::kLazy;
  bool busy = false;  // an operation runs
  int major = 9, minor = 0;
  bool reverse = true;
  int fail_allocation = 0, fail_launch = 0;
  std::vector<Device> devices;
  std::map<uintptr_t, Allocation> memory;  // by base
  std::vector<std::shared_ptr<CUstream_st>> streams;
  std::map<CUevent_st*, std::shared_ptr<CUevent_st>> events;
  std::map<CUgraph_st*, std::shared_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec_st*, std::shared_ptr<CUgraphExec_st>> execs;
  std::vector<std::shared_ptr<Capture>> captures;
  std::vector<std::string> reports;
  std::thread thread;
  bool stop = false;
};

Runtime& runtime();
using Lock = std::unique_lock<std::mutex>;

// Access rights to device memory, for the thread that runs an operation (guard.cc).
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};
void guard_new_arena(char* arena);
void guard_extend(Device&, size_t high_water);  // inside of a DeviceAccess

// stream.cc
bool run_head(Runtime&, Lock&, CUstream_st&);  // true: something moved
void wait(Runtime&, Lock&, const std::shared_ptr<CUstream_st>&, const std::function<bool()>& done);
void wait_device(Runtime&, Lock&, int device);
// Runs it in the caller's thread as an operation of its own, after the null stream's rules.
void run_now(Runtime&, Lock&, const std::function<void()>&);
void poll(Runtime&, Lock&, const std::shared_ptr<CUstream_st>&);  // someone asks, so it moves a bit
std::shared_ptr<CUstream_st> find_stream(Runtime&, cudaStream_t);  // null for none, with a report
cudaError_t submit(Runtime&, Lock&, cudaStream_t, Op);
void stop_thread(Runtime&, Lock&);

// graph.cc
cudaError_t capture(Runtime&, CUstream_st&, Op);
void invalidate(CUstream_st&);
// cudaSuccess, or the error of a call that a capture in global mode forbids.
cudaError_t capture_allows(Runtime&);

// memory.cc
std::map<uintptr_t, Allocation>::iterator find(Runtime&, const void*);
bool in_arena(Runtime&, const void*);
// Wholly inside of one allocation that calls may name (running: that operations may touch).
bool inside(Runtime&, const void*, size_t bytes, bool running = false);
void check_canaries(Runtime&, const std::string& after);
void release_all(Runtime&);

using Stream = std::shared_ptr<CUstream_st>;

// device.cc
int current_device();
cudaError_t note(cudaError_t);  // for cudaGetLastError
cudaError_t refuse(Runtime&, cudaError_t, std::string why);
void fault(Runtime&, int device, cudaError_t, std::string what);
inline thread_local bool in_operation = false;

// The body of an API call: with the mutex, unless the context is broken or this is a callback.
template <class Body>
cudaError_t call(const Body& body) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  if (in_operation) return note(refuse(rt, cudaErrorNotPermitted, "a call inside a host function"));
  if (cudaError_t sticky = rt.devices[current_device()].sticky) return sticky;
  return note(body(rt, lock));
}

// The same for a call on a stream.
template <class Body>
cudaError_t call_on(cudaStream_t handle, const Body& body) {
  return call([&](Runtime& rt, Lock& lock) -> cudaError_t {
    const auto stream = find_stream(rt, handle);
    return stream ? body(rt, lock, stream) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace headrace::simt

struct CUstream_st {
  int device = 0;
  bool blocking = true;  // waits for, and is waited for by, the null stream
  bool alive = true;     // a destroyed stream still runs what it has
  std::deque<headrace::simt::Op> ops;
  std::shared_ptr<headrace::simt::Capture> capture;
  std::set<size_t> frontier;  // nodes of the capture that the next one follows
};

struct CUevent_st {
  int device = 0;
  bool timing = true;
  std::shared_ptr<headrace::simt::Record> record;
  std::shared_ptr<headrace::simt::Capture> capture;  // recorded there
  std::set<size_t> frontier;
};

struct CUgraph_st {
  struct Node {
    headrace::simt::Op op;
    std::set<size_t> after;
  };
  std::vector<Node> nodes;
};

struct CUgraphExec_st {
  std::vector<CUgraph_st::Node> nodes;
  std::shared_ptr<headrace::simt::Record> last;  // a launch follows the one before it
};

namespace headrace::simt {

struct Capture {
  CUgraph_st graph;
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode{};
  std::thread::id thread;
  bool valid = true;
};

}  // namespace headrace::simt

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/simt/cudart/state.h"

namespace headrace::simt {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

void die(const char* why) {
  std::fprintf(stderr, "stand-in libcudart: %s\n", why);
  std::abort();
}

long from_environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}

Streams mode_from_environment() {
  const char* text = std::getenv("HEADRACE_SIMT_STREAMS");
  const std::string mode = text ? text : "lazy";
  if (mode == "lazy") return Streams::kLazy;
  if (mode == "eager") return Streams::kEager;
  if (mode != "threaded") die("HEADRACE_SIMT_STREAMS is eager, lazy or threaded");
  return Streams::kThreaded;
}

void fill(Runtime& rt, Streams mode, int count) {
  if (count < 0 || count > kDevicesMax) die("0 to 8 devices");
  rt.mode = mode;
  const long bytes = from_environment("HEADRACE_SIMT_MEMORY", long{1} << 30);
  for (int i = 0; i < std::max(count, 1); ++i) {
    Device device;
    void* arena =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) die("no addresses for device memory");
    device.arena = static_cast<char*>(arena);
    device.total = std::clamp<size_t>(bytes, 1, kMemoryMax);
    guard_new_arena(device.arena);
    rt.devices.push_back(device);
  }
}

int environment_devices() { return int(from_environment("HEADRACE_SIMT_DEVICES", 1)); }

}  // namespace

Runtime& runtime() {
  // Never destroyed: a device thread may outlive main.
  static Runtime* const kRuntime = [] {
    auto* rt = new Runtime;
    fill(*rt, mode_from_environment(), environment_devices());
    return rt;
  }();
  return *kRuntime;
}

int current_device() { return device_of_thread; }

cudaError_t note(cudaError_t error) {
  if (error && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t refuse(Runtime& rt, cudaError_t error, std::string why) {
  rt.reports.push_back(std::move(why));
  return error;
}

void fault(Runtime& rt, int device, cudaError_t error, std::string what) {
  rt.reports.push_back(std::move(what));
  if (!rt.devices[device].sticky) rt.devices[device].sticky = error;
  rt.moved.notify_all();
}

void reset(Streams mode, int devices) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  for (Device& device : rt.devices) device.sticky = cudaErrorUnknown;  // nothing more runs
  stop_thread(rt, lock);
  rt.moved.wait(lock, [&] { return !rt.busy; });
  release_all(rt);
  for (Device& device : rt.devices) munmap(device.arena, kArenaBytes);
  rt.devices.clear();
  rt.streams.clear();
  rt.events.clear();
  rt.graphs.clear();
  rt.execs.clear();
  rt.captures.clear();
  rt.reports.clear();
  rt.fail_allocation = rt.fail_launch = 0;
  rt.major = 9, rt.minor = 0;
  rt.reverse = true;
  device_of_thread = 0;
  last_error = cudaSuccess;
  fill(rt, mode, devices);
}

void reset() { reset(mode_from_environment(), environment_devices()); }

void set_memory(int device, size_t bytes) {
  Lock lock(runtime().mutex);
  runtime().devices.at(device).total = std::min(bytes, kMemoryMax);
}

void set_capability(int major, int minor) {
  Lock lock(runtime().mutex);
  runtime().major = major, runtime().minor = minor;
}

void set_graph_order(bool reverse) {
  Lock lock(runtime().mutex);
  runtime().reverse = reverse;
}

void fail_allocation(int countdown) {
  Lock lock(runtime().mutex);
  runtime().fail_allocation = countdown;
}

void fail_launch(int countdown) {
  Lock lock(runtime().mutex);
  runtime().fail_launch = countdown;
}

void lose_device(int device, cudaError_t error) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  rt.devices.at(device).held = false;
  fault(rt, device, error, "device " + std::to_string(device) + " is lost");
}

void hold_device(int device, bool held) {
  Lock lock(runtime().mutex);
  runtime().devices.at(device).held = held;
  runtime().moved.notify_all();
}

std::vector<std::string> leaks() {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  std::vector<std::string> found;
  for (const auto& [base, a] : rt.memory) {
    const std::string where =
        a.memory == Memory::kPinned ? std::string("pinned") : "device " + std::to_string(a.device);
    found.push_back(where + ": " + std::to_string(a.bytes) + " bytes");
  }
  for (const auto& stream : rt.streams) {
    if (stream->alive) found.push_back("stream");
  }
  found.insert(found.end(), rt.events.size(), "event");
  found.insert(found.end(), rt.graphs.size(), "graph");
  found.insert(found.end(), rt.execs.size(), "executable graph");
  return found;
}

std::vector<std::string> take_reports() {
  Lock lock(runtime().mutex);
  return std::exchange(runtime().reports, {});
}

}  // namespace headrace::simt

using namespace headrace::simt;

namespace {

constexpr int kProcessors = 4;  // few, so that a grid of several waves is a small one

cudaError_t attribute(Runtime& rt, cudaDeviceAttr attr, int* value) {
  const std::map<cudaDeviceAttr, int> known = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxSharedMemoryPerBlock, 48 * 1024},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, int(kSharedMax)},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, int(kSharedMax) + 1024},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMultiProcessorCount, kProcessors},
      {cudaDevAttrComputeCapabilityMajor, rt.major},
      {cudaDevAttrComputeCapabilityMinor, rt.minor},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrAsyncEngineCount, 2},
      {cudaDevAttrL2CacheSize, 1 << 20},
  };
  const auto found = known.find(attr);
  if (found == known.end()) {
    return refuse(rt, cudaErrorInvalidValue, "a device attribute without a value here");
  }
  *value = found->second;
  return cudaSuccess;
}

bool no_device(Runtime& rt, int device) { return device < 0 || device >= int(rt.devices.size()); }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  if (!count) return note(cudaErrorInvalidValue);
  *count = int(rt.devices.size());
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  if (no_device(rt, device)) return note(cudaErrorInvalidDevice);
  device_of_thread = device;
  return rt.devices[device].sticky;
}

cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return call([&](Runtime& rt, Lock&) {
    return no_device(rt, device) ? cudaErrorInvalidDevice : attribute(rt, attr, value);
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return call([&](Runtime& rt, Lock&) {
    if (no_device(rt, device)) return cudaErrorInvalidDevice;
    *out = {};
    std::snprintf(out->name, sizeof out->name, "Emulated device %d", device);
    std::memcpy(out->uuid.bytes, &device, sizeof device);
    out->totalGlobalMem = rt.devices[device].total;
    out->sharedMemPerBlock = 48 * 1024;
    out->sharedMemPerBlockOptin = kSharedMax;
    out->sharedMemPerMultiprocessor = kSharedMax + 1024;
    out->regsPerBlock = 65536;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->major = rt.major;
    out->minor = rt.minor;
    out->multiProcessorCount = kProcessors;
    out->l2CacheSize = 1 << 20;
    out->unifiedAddressing = out->concurrentKernels = 1;
    out->pciBusID = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([&](Runtime& rt, Lock& lock) {
    if (cudaError_t error = capture_allows(rt)) return error;
    wait_device(rt, lock, current_device());
    return rt.devices[current_device()].sticky;
  });
}

cudaError_t cudaPeekAtLastError() {
  Lock lock(runtime().mutex);
  const cudaError_t sticky = runtime().devices[current_device()].sticky;
  return sticky ? sticky : last_error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define HEADRACE_NAME(name) \
  case name:                \
    return #name;
    HEADRACE_NAME(cudaSuccess)
    HEADRACE_NAME(cudaErrorInvalidValue)
    HEADRACE_NAME(cudaErrorMemoryAllocation)
    HEADRACE_NAME(cudaErrorInvalidConfiguration)
    HEADRACE_NAME(cudaErrorInvalidPitchValue)
    HEADRACE_NAME(cudaErrorInvalidMemcpyDirection)
    HEADRACE_NAME(cudaErrorNoDevice)
    HEADRACE_NAME(cudaErrorInvalidDevice)
    HEADRACE_NAME(cudaErrorInvalidResourceHandle)
    HEADRACE_NAME(cudaErrorIllegalState)
    HEADRACE_NAME(cudaErrorNotReady)
    HEADRACE_NAME(cudaErrorIllegalAddress)
    HEADRACE_NAME(cudaErrorLaunchFailure)
    HEADRACE_NAME(cudaErrorNotPermitted)
    HEADRACE_NAME(cudaErrorUnknown)
    HEADRACE_NAME(cudaErrorStreamCaptureUnsupported)
    HEADRACE_NAME(cudaErrorStreamCaptureInvalidated)
    HEADRACE_NAME(cudaErrorStreamCaptureUnjoined)
#undef HEADRACE_NAME
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

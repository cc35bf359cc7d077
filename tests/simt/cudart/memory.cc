#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/simt/cudart/state.h"

// Of the address sanitizer, where it is linked in: kernels' accesses are then checked to the byte.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
}

namespace headrace::simt {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kCanaryBytes = 256;
constexpr unsigned char kCanary = 0xa5;
constexpr int kUnwritten = 0xff;             // every float format reads it as not a number
constexpr size_t kAccountedBytes = 512;      // what an allocation counts as a multiple of
constexpr size_t kReturnedBytes = 16 << 20;  // from here on freed memory goes back to the system

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
size_t chunk_of(size_t bytes) { return round_up(bytes + kCanaryBytes, kPage); }

void poison(char* at, size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(at, bytes);
}

void unpoison(char* at, size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(at, bytes);
}

// The first gap at or behind the cursor, so that freed addresses are not soon used again.
char* find_gap(Runtime& rt, Device& device, size_t chunk) {
  const auto first = reinterpret_cast<uintptr_t>(device.arena);
  for (size_t start : {device.cursor, size_t{0}}) {
    size_t at = start;
    for (auto next = rt.memory.lower_bound(first + at);; ++next) {
      const bool ours = next != rt.memory.end() && next->first < first + kArenaBytes;
      if (at + chunk <= (ours ? next->first - first : kArenaBytes)) {
        device.cursor = at + chunk;
        return device.arena + at;
      }
      if (!ours) break;
      at = next->first - first + chunk_of(next->second.bytes);
    }
  }
  return nullptr;
}

cudaError_t allocate(Runtime& rt, void** out, size_t bytes, Life life) {
  if (!out) return cudaErrorInvalidValue;
  *out = nullptr;
  if (!bytes) return cudaSuccess;
  Device& device = rt.devices[current_device()];
  const size_t accounted = round_up(bytes, kAccountedBytes);
  if (rt.fail_allocation > 0 && --rt.fail_allocation == 0) return cudaErrorMemoryAllocation;
  if (bytes > kMemoryMax || device.used + accounted > device.total) {
    return cudaErrorMemoryAllocation;
  }
  char* at = find_gap(rt, device, chunk_of(bytes));
  if (!at) return cudaErrorMemoryAllocation;
  DeviceAccess access;
  guard_extend(device, std::max(device.high_water, size_t(at - device.arena) + chunk_of(bytes)));
  unpoison(at, chunk_of(bytes));
  std::memset(at, kUnwritten, bytes);
  std::memset(at + bytes, kCanary, kCanaryBytes);
  poison(at + bytes, kCanaryBytes);
  device.used += accounted;
  rt.memory[reinterpret_cast<uintptr_t>(at)] = {Memory::kDevice, current_device(), bytes, life};
  *out = at;
  return cudaSuccess;
}

bool canary_whole(uintptr_t base, const Allocation& a) {
  const auto* at = reinterpret_cast<const unsigned char*>(base + a.bytes);
  return std::all_of(at, at + kCanaryBytes, [](unsigned char c) { return c == kCanary; });
}

void check_canary(Runtime& rt, uintptr_t base, const Allocation& a, const std::string& after) {
  if (a.memory != Memory::kDevice || canary_whole(base, a)) return;
  fault(rt, a.device, cudaErrorIllegalAddress,
        after + ": written past an allocation of " + std::to_string(a.bytes) + " bytes");
}

void release(Runtime& rt, std::map<uintptr_t, Allocation>::iterator at, const std::string& by) {
  const auto [base, a] = *at;
  char* memory = reinterpret_cast<char*>(base);
  if (a.memory == Memory::kPinned) {
    std::free(memory);
  } else {
    DeviceAccess access;
    check_canary(rt, base, a, by);
    if (a.bytes >= kReturnedBytes) {
      madvise(memory, chunk_of(a.bytes), MADV_DONTNEED);
    } else {
      std::memset(memory, kUnwritten, a.bytes);
    }
    poison(memory, chunk_of(a.bytes));
    rt.devices[a.device].used -= round_up(a.bytes, kAccountedBytes);
  }
  rt.memory.erase(at);
}

// The allocation that begins at the address and may be freed.
cudaError_t free_checked(Runtime& rt, Lock& lock, void* p, Memory memory) {
  if (!p) return cudaSuccess;
  if (cudaError_t error = capture_allows(rt)) return error;
  const auto at = rt.memory.find(reinterpret_cast<uintptr_t>(p));
  if (at == rt.memory.end() || at->second.memory != memory || at->second.life == Life::kGoing) {
    return refuse(rt, cudaErrorInvalidValue, "free of what was not allocated, or twice");
  }
  const int device = at->second.device;
  for (int d = 0; d < int(rt.devices.size()); ++d) {
    if (memory == Memory::kPinned || d == device) wait_device(rt, lock, d);
  }
  release(rt, rt.memory.find(reinterpret_cast<uintptr_t>(p)), "cudaFree");
  return rt.devices[current_device()].sticky;
}

}  // namespace

std::map<uintptr_t, Allocation>::iterator find(Runtime& rt, const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  auto at = rt.memory.upper_bound(address);
  if (at == rt.memory.begin()) return rt.memory.end();
  --at;
  return address < at->first + at->second.bytes ? at : rt.memory.end();
}

bool in_arena(Runtime& rt, const void* p) {
  const char* at = static_cast<const char*>(p);
  return std::any_of(rt.devices.begin(), rt.devices.end(),
                     [&](const Device& d) { return at >= d.arena && at < d.arena + kArenaBytes; });
}

bool inside(Runtime& rt, const void* p, size_t bytes, bool running) {
  const auto at = find(rt, p);
  if (at == rt.memory.end() || at->second.life == (running ? Life::kComing : Life::kGoing)) {
    return false;
  }
  return bytes <= at->first + at->second.bytes - reinterpret_cast<uintptr_t>(p);
}

void check_canaries(Runtime& rt, const std::string& after) {
  for (const auto& [base, a] : rt.memory) check_canary(rt, base, a, after);
}

void release_all(Runtime& rt) {
  while (!rt.memory.empty()) release(rt, rt.memory.begin(), "reset");
}

Range find_range(const void* address) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  const auto at = find(rt, address);
  if (at == rt.memory.end()) return {};
  return {at->second.memory, at->second.device, at->first, at->second.bytes};
}

}  // namespace headrace::simt

using namespace headrace::simt;

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return call([&](Runtime& rt, Lock&) {
    if (cudaError_t error = capture_allows(rt)) return error;
    return allocate(rt, out, bytes, Life::kAlive);
  });
}

cudaError_t cudaFree(void* p) {
  return call([&](Runtime& rt, Lock& lock) { return free_checked(rt, lock, p, Memory::kDevice); });
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    if (stream->capture) return refuse(rt, cudaErrorStreamCaptureUnsupported, "memory in a graph");
    const cudaError_t error = allocate(rt, out, bytes, Life::kComing);
    if (error || !*out) return error;
    const auto base = reinterpret_cast<uintptr_t>(*out);
    const auto step = [&rt, base] {
      Lock running(rt.mutex);
      const auto at = rt.memory.find(base);
      if (at != rt.memory.end() && at->second.life == Life::kComing) at->second.life = Life::kAlive;
      return Step::kDone;
    };
    return submit(rt, lock, handle, {"cudaMallocAsync", step, {}, {}});
  });
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
  return call([&](Runtime& rt, Lock& lock) {
    if (!p) return cudaSuccess;
    const auto base = reinterpret_cast<uintptr_t>(p);
    const auto at = rt.memory.find(base);
    if (at == rt.memory.end() || at->second.memory != Memory::kDevice ||
        at->second.life == Life::kGoing) {
      return refuse(rt, cudaErrorInvalidValue, "free of what was not allocated, or twice");
    }
    const auto step = [&rt, base] {
      Lock running(rt.mutex);
      const auto going = rt.memory.find(base);
      if (going != rt.memory.end()) release(rt, going, "cudaFreeAsync");
      return Step::kDone;
    };
    const auto stream = find_stream(rt, handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return refuse(rt, cudaErrorStreamCaptureUnsupported, "memory in a graph");
    // An allocation that is still coming runs first: it is in front, or nothing orders the two.
    if (at->second.life == Life::kAlive) at->second.life = Life::kGoing;
    return submit(rt, lock, handle, {"cudaFreeAsync", step, {}, {}});
  });
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned int) {
  return call([&](Runtime& rt, Lock&) {
    if (!out) return cudaErrorInvalidValue;
    *out = nullptr;
    if (!bytes) return cudaSuccess;
    if (rt.fail_allocation > 0 && --rt.fail_allocation == 0) return cudaErrorMemoryAllocation;
    if (posix_memalign(out, kPage, bytes)) return cudaErrorMemoryAllocation;
    std::memset(*out, kUnwritten, bytes);
    rt.memory[reinterpret_cast<uintptr_t>(*out)] = {Memory::kPinned, current_device(), bytes,
                                                    Life::kAlive};
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

cudaError_t cudaFreeHost(void* p) {
  return call([&](Runtime& rt, Lock& lock) { return free_checked(rt, lock, p, Memory::kPinned); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  return call([&](Runtime& rt, Lock&) {
    const Device& device = rt.devices[current_device()];
    if (free_bytes) *free_bytes = device.total - device.used;
    if (total) *total = device.total;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  return call([&](Runtime& rt, Lock&) {
    if (!out) return cudaErrorInvalidValue;
    *out = {};
    out->hostPointer = const_cast<void*>(p);
    out->device = -2;  // what the real one says of memory that it does not know
    const auto at = find(rt, p);
    if (at == rt.memory.end()) return cudaSuccess;
    const bool pinned = at->second.memory == Memory::kPinned;
    out->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = at->second.device;
    out->devicePointer = const_cast<void*>(p);
    if (!pinned) out->hostPointer = nullptr;
    return cudaSuccess;
  });
}

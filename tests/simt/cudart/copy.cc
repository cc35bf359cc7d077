#include <cstring>

#include "tests/simt/cudart/state.h"

using namespace headrace::simt;

namespace {

struct Copy {
  char* to = nullptr;
  const char* from = nullptr;
  size_t bytes = 0;
};

// What the memory is, or "out of bounds" as a report.
cudaError_t classify(Runtime& rt, const void* p, size_t bytes, Memory* memory) {
  const auto at = find(rt, p);
  *memory = at == rt.memory.end() ? Memory::kNone : at->second.memory;
  if (*memory == Memory::kNone ? !in_arena(rt, p) : inside(rt, p, bytes)) return cudaSuccess;
  return refuse(rt, cudaErrorInvalidValue, "a copy or memset past an allocation, or after its end");
}

bool kind_fits(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

struct Kinds {
  Memory to, from;
};

cudaError_t check(Runtime& rt, const Copy& copy, cudaMemcpyKind kind, Kinds* kinds) {
  if (cudaError_t error = classify(rt, copy.to, copy.bytes, &kinds->to)) return error;
  if (cudaError_t error = classify(rt, copy.from, copy.bytes, &kinds->from)) return error;
  if (!kind_fits(kind, kinds->to == Memory::kDevice, kinds->from == Memory::kDevice)) {
    return refuse(rt, cudaErrorInvalidMemcpyDirection, "a copy of another kind than it says");
  }
  if (copy.to < copy.from + copy.bytes && copy.from < copy.to + copy.bytes) {
    return refuse(rt, cudaErrorInvalidValue, "a copy onto itself");
  }
  return cudaSuccess;
}

void move(const Copy& copy) { std::memcpy(copy.to, copy.from, copy.bytes); }

// Memory may have gone since the call: an operation looks again.
bool still_there(Memory memory, const void* p, size_t bytes, const char* what, int device) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  if (memory == Memory::kNone || inside(rt, p, bytes, true)) return true;
  fault(rt, device, cudaErrorIllegalAddress,
        std::string(what) + ": ran before its memory came, or after it had gone");
  return false;
}

cudaError_t copy_async(Copy copy, cudaMemcpyKind kind, cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    if (!copy.bytes) return cudaSuccess;
    Kinds kinds;
    if (cudaError_t error = check(rt, copy, kind, &kinds)) return error;
    std::shared_ptr<std::string> staged;
    if (kinds.to == Memory::kNone || kinds.from == Memory::kNone) {
      if (stream->capture) {
        return refuse(rt, cudaErrorInvalidValue, "pageable memory in a capture");
      }
      if (kinds.from == Memory::kNone) {  // such a copy's source may be used again at once
        staged = std::make_shared<std::string>(copy.from, copy.bytes);
        copy.from = staged->data();
      }
    }
    const int device = stream->device;
    const auto step = [copy, kinds, staged, device] {
      if (still_there(kinds.to, copy.to, copy.bytes, "copy", device) &&
          still_there(kinds.from, copy.from, copy.bytes, "copy", device)) {
        move(copy);
      }
      return Step::kDone;
    };
    if (cudaError_t error = submit(rt, lock, handle, {"copy", step, {}, {}})) return error;
    if (kinds.to != Memory::kNone) return cudaSuccess;
    wait(rt, lock, stream, [&] { return stream->ops.empty(); });
    return rt.devices[device].sticky;
  });
}

cudaError_t check_set(Runtime& rt, void* p, size_t bytes) {
  Memory memory;
  if (cudaError_t error = classify(rt, p, bytes, &memory)) return error;
  if (memory == Memory::kDevice) return cudaSuccess;
  return refuse(rt, cudaErrorInvalidValue, "a memset of host memory");
}

Copy line(void* to, const void* from, size_t bytes) {
  return {static_cast<char*>(to), static_cast<const char*>(from), bytes};
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy_async(line(to, from, bytes), kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&](Runtime& rt, Lock& lock) {
    if (cudaError_t error = capture_allows(rt)) return error;
    if (!bytes) return cudaSuccess;
    const Copy copy = line(to, from, bytes);
    Kinds kinds;
    if (cudaError_t error = check(rt, copy, kind, &kinds)) return error;
    run_now(rt, lock, [&] { move(copy); });
    return rt.devices[current_device()].sticky;
  });
}

cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return call([&](Runtime& rt, Lock& lock) {
    if (cudaError_t error = capture_allows(rt)) return error;
    if (!bytes) return cudaSuccess;
    if (cudaError_t error = check_set(rt, p, bytes)) return error;
    run_now(rt, lock, [&] { std::memset(p, value, bytes); });
    return rt.devices[current_device()].sticky;
  });
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    if (!bytes) return cudaSuccess;
    if (cudaError_t error = check_set(rt, p, bytes)) return error;
    const int device = stream->device;
    const auto step = [=] {
      if (still_there(Memory::kDevice, p, bytes, "memset", device)) std::memset(p, value, bytes);
      return Step::kDone;
    };
    return submit(rt, lock, handle, {"memset", step, {}, {}});
  });
}

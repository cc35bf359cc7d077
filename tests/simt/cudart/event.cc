#include "tests/simt/cudart/state.h"

using namespace headrace::simt;

namespace {

CUevent_st* find_event(Runtime& rt, cudaEvent_t handle) {
  if (rt.events.count(handle)) return handle;
  refuse(rt, cudaErrorInvalidResourceHandle, "no such event");
  return nullptr;
}

// What a wait and a query have to say before they look at the record.
cudaError_t waitable(Runtime& rt, cudaEvent_t handle) {
  const CUevent_st* event = find_event(rt, handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture) return refuse(rt, cudaErrorCapturedEvent, "an event recorded in a capture");
  return capture_allows(rt);
}

}  // namespace

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned int flags) {
  return call([&](Runtime& rt, Lock&) {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (!out || (flags & ~known)) return cudaErrorInvalidValue;
    auto event = std::make_shared<CUevent_st>();
    event->device = current_device();
    event->timing = !(flags & cudaEventDisableTiming);
    *out = event.get();
    rt.events.emplace(event.get(), event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call([&](Runtime& rt, Lock&) {
    if (!find_event(rt, handle)) return cudaErrorInvalidResourceHandle;
    rt.events.erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return call([&](Runtime& rt, Lock& lock) {
    CUevent_st* event = find_event(rt, handle);
    const auto stream = find_stream(rt, stream_handle);
    if (!event || !stream) return cudaErrorInvalidResourceHandle;
    if (event->device != stream->device) {
      return refuse(rt, cudaErrorInvalidResourceHandle, "an event of another device");
    }
    event->capture = stream->capture;
    if (stream->capture) {
      event->frontier = stream->frontier;
      return cudaSuccess;
    }
    const auto record = std::make_shared<Record>();
    const cudaError_t error = submit(rt, lock, stream_handle, {"event record", {}, {}, record});
    if (!error) event->record = record;
    return error;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle,
                                unsigned int flags) {
  return call([&](Runtime& rt, Lock& lock) {
    const CUevent_st* event = find_event(rt, handle);
    const auto stream = find_stream(rt, stream_handle);
    if (!event || !stream) return cudaErrorInvalidResourceHandle;
    if (flags) return cudaErrorInvalidValue;
    if (event->capture) {
      if (stream->capture && stream->capture != event->capture) {
        return refuse(rt, cudaErrorStreamCaptureMerge, "two captures would become one");
      }
      stream->capture = event->capture;
      stream->frontier.insert(event->frontier.begin(), event->frontier.end());
      return cudaSuccess;
    }
    if (stream->capture && event->record) {
      invalidate(*stream);
      return refuse(rt, cudaErrorStreamCaptureIsolation, "a capture waits for what is outside");
    }
    if (!event->record) return cudaSuccess;
    return submit(rt, lock, stream_handle, {"event wait", {}, event->record, {}});
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call([&](Runtime& rt, Lock& lock) {
    if (cudaError_t error = waitable(rt, handle)) return error;
    const std::shared_ptr<Record> record = handle->record;
    if (!record) return cudaSuccess;
    const int device = handle->device;
    if (const auto stream = record->stream.lock()) {
      wait(rt, lock, stream, [&] { return record->done; });
    }
    return rt.devices[device].sticky;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call([&](Runtime& rt, Lock& lock) {
    if (cudaError_t error = waitable(rt, handle)) return error;
    const std::shared_ptr<Record> record = handle->record;
    if (!record || record->done) return rt.devices[handle->device].sticky;
    const int device = handle->device;
    if (const auto stream = record->stream.lock()) poll(rt, lock, stream);
    const cudaError_t sticky = rt.devices[device].sticky;
    return sticky ? sticky : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call([&](Runtime& rt, Lock&) {
    const CUevent_st *a = find_event(rt, start), *b = find_event(rt, end);
    if (!ms) return cudaErrorInvalidValue;
    if (!a || !b || !a->timing || !b->timing || !a->record || !b->record ||
        a->device != b->device) {
      return refuse(rt, cudaErrorInvalidResourceHandle, "events without a time between them");
    }
    if (!a->record->done || !b->record->done) return cudaErrorNotReady;
    *ms = static_cast<float>(b->record->milliseconds - a->record->milliseconds);
    return cudaSuccess;
  });
}

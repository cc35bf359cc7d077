#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/simt/cudart/state.h"
#include "tests/simt/launch.h"

namespace headrace::simt {
namespace {

constexpr auto kPollEvery = std::chrono::microseconds(50);

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

void finish_head(Runtime& rt, CUstream_st& stream) {
  const std::shared_ptr<Record> record = stream.ops.front().completes;
  if (record) {
    record->done = true;
    record->milliseconds = now();
  }
  stream.ops.pop_front();
  rt.moved.notify_all();
}

bool move_all(Runtime& rt, Lock& lock) {
  bool moved = false;
  const auto streams = rt.streams;  // an operation may end a stream's life
  for (const auto& stream : streams) moved |= run_head(rt, lock, *stream);
  std::erase_if(rt.streams, [](const auto& s) { return !s->alive && s->ops.empty(); });
  return moved;
}

// One operation of what the stream's head waits for, else of the stream itself.
bool advance(Runtime& rt, Lock& lock, CUstream_st& stream) {
  if (stream.ops.empty()) return false;
  const std::shared_ptr<Record> after = stream.ops.front().after;
  if (!after || after->done) return run_head(rt, lock, stream);
  const std::shared_ptr<CUstream_st> source = after->stream.lock();
  return source && advance(rt, lock, *source);
}

void device_thread(Runtime& rt) {
  Lock lock(rt.mutex);
  while (!rt.stop) {
    if (!move_all(rt, lock)) rt.moved.wait_for(lock, kPollEvery * 4);
  }
}

void pump(Runtime& rt, Lock& lock) {
  if (rt.mode == Streams::kThreaded && !rt.thread.joinable()) {
    rt.stop = false;
    rt.thread = std::thread(device_thread, std::ref(rt));
  }
  rt.moved.notify_all();
  while (rt.mode == Streams::kEager && !rt.busy && move_all(rt, lock)) {
  }
}

Step run_launches(const std::shared_ptr<std::vector<Launch>>& shared, int device) {
  Runtime& rt = runtime();
  std::vector<Launch> launches;
  bool injected = false;
  {
    Lock lock(rt.mutex);
    launches = *shared;
    for (size_t i = 0; i < launches.size(); ++i) {
      injected |= rt.fail_launch > 0 && --rt.fail_launch == 0;
    }
  }
  std::optional<Fault> wrong;
  if (injected) {
    wrong = Fault{std::string(launches.back().kernel) + ": an injected failure"};
  } else {
    wrong = run_grids(launches);
  }
  Lock lock(rt.mutex);
  if (wrong) {
    fault(rt, device, cudaErrorLaunchFailure, wrong->what);
  } else {
    check_canaries(rt, launches.back().kernel);
  }
  return Step::kDone;
}

// Where a dependent launch may join the launch in front of it, which has not begun.
std::shared_ptr<std::vector<Launch>> in_front(Runtime& rt, const CUstream_st& stream) {
  if (stream.capture) {
    if (stream.frontier.size() != 1) return nullptr;
    return stream.capture->graph.nodes[*stream.frontier.begin()].op.launches;
  }
  const bool may_run = rt.busy && stream.ops.size() == 1;
  return stream.ops.empty() || may_run ? nullptr : stream.ops.back().launches;
}

}  // namespace

bool run_head(Runtime& rt, Lock& lock, CUstream_st& stream) {
  if (rt.busy || stream.ops.empty() || rt.devices[stream.device].held) return false;
  Op& op = stream.ops.front();  // stays in place while others are put behind it
  Step step = Step::kDone;
  if (!rt.devices[stream.device].sticky) {
    if (op.after && !op.after->done) return false;
    if (op.step) {
      rt.busy = true;
      lock.unlock();
      in_operation = true;
      {
        DeviceAccess access;
        step = op.step();
      }
      in_operation = false;
      lock.lock();
      rt.busy = false;
      rt.moved.notify_all();
    }
  }
  if (step == Step::kDone) finish_head(rt, stream);
  return step != Step::kPending;
}

void wait(Runtime& rt, Lock& lock, const std::shared_ptr<CUstream_st>& stream,
          const std::function<bool()>& done) {
  while (!done()) {
    const bool mine = rt.mode != Streams::kThreaded && !rt.busy;
    // A device does not stop for one stream's peer: what can move does, once this one cannot.
    if (mine && (advance(rt, lock, *stream) || move_all(rt, lock))) continue;
    if (!done()) rt.moved.wait_for(lock, kPollEvery);
  }
}

void wait_device(Runtime& rt, Lock& lock, int device) {
  const auto streams = rt.streams;
  // The youngest first: an order that nobody meant.
  for (auto at = streams.rbegin(); at != streams.rend(); ++at) {
    if ((*at)->device != device) continue;
    wait(rt, lock, *at, [&] { return (*at)->ops.empty(); });
  }
}

void run_now(Runtime& rt, Lock& lock, const std::function<void()>& body) {
  const auto streams = rt.streams;
  for (const auto& stream : streams) {
    if (!stream->blocking || stream->device != current_device() || stream->capture) continue;
    wait(rt, lock, stream, [&] { return stream->ops.empty(); });
  }
  rt.moved.wait(lock, [&] { return !rt.busy; });
  rt.busy = true;
  lock.unlock();
  {
    DeviceAccess access;
    body();
  }
  lock.lock();
  rt.busy = false;
  rt.moved.notify_all();
}

void poll(Runtime& rt, Lock& lock, const std::shared_ptr<CUstream_st>& stream) {
  if (rt.mode == Streams::kLazy && !advance(rt, lock, *stream)) move_all(rt, lock);
  pump(rt, lock);
}

std::shared_ptr<CUstream_st> find_stream(Runtime& rt, cudaStream_t handle) {
  for (const auto& stream : rt.streams) {
    if (stream.get() == handle && stream->alive) return stream;
  }
  const bool null = !handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  refuse(rt, cudaErrorInvalidResourceHandle,
         null ? "stream 0 is not ours to use" : "no such stream");
  return nullptr;
}

cudaError_t submit(Runtime& rt, Lock& lock, cudaStream_t handle, Op op) {
  const auto stream = find_stream(rt, handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return capture(rt, *stream, std::move(op));
  if (cudaError_t sticky = rt.devices[stream->device].sticky) return sticky;
  if (op.completes) op.completes->stream = stream;
  stream->ops.push_back(std::move(op));
  pump(rt, lock);
  return cudaSuccess;
}

void stop_thread(Runtime& rt, Lock& lock) {
  if (!rt.thread.joinable()) return;
  rt.stop = true;
  rt.moved.notify_all();
  std::thread ended = std::move(rt.thread);
  lock.unlock();
  ended.join();
  lock.lock();
}

cudaError_t enqueue(const Launch& launch, cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    if (stream->device != current_device()) {
      return refuse(rt, cudaErrorInvalidResourceHandle, "a launch on another device's stream");
    }
    if (const char* why = refusal(launch)) {
      return refuse(rt, cudaErrorInvalidConfiguration, std::string(launch.kernel) + ": " + why);
    }
    if (launch.dependent) {
      if (const auto front = in_front(rt, *stream)) {
        front->push_back(launch);
        return cudaSuccess;
      }
    }
    const auto launches = std::make_shared<std::vector<Launch>>(1, launch);
    const auto step = [launches, device = stream->device] {
      return run_launches(launches, device);
    };
    return submit(rt, lock, handle, {launch.kernel, step, {}, {}, launches});
  });
}

}  // namespace headrace::simt

using namespace headrace::simt;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned int flags) {
  return call([&](Runtime& rt, Lock&) {
    if (!out || (flags & ~cudaStreamNonBlocking)) return cudaErrorInvalidValue;
    auto stream = std::make_shared<CUstream_st>();
    stream->device = current_device();
    stream->blocking = !(flags & cudaStreamNonBlocking);
    *out = stream.get();
    rt.streams.push_back(std::move(stream));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    stream->alive = false;
    pump(rt, lock);
    std::erase_if(rt.streams, [](const auto& s) { return !s->alive && s->ops.empty(); });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    if (stream->capture) {
      invalidate(*stream);
      return refuse(rt, cudaErrorStreamCaptureUnsupported, "a wait for a stream in capture");
    }
    wait(rt, lock, stream, [&] { return stream->ops.empty(); });
    return rt.devices[stream->device].sticky;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call_on(handle, [&](Runtime& rt, Lock& lock, const Stream& stream) {
    if (stream->capture) {
      invalidate(*stream);
      return refuse(rt, cudaErrorStreamCaptureUnsupported, "a query of a stream in capture");
    }
    const bool empty = stream->ops.empty();
    poll(rt, lock, stream);
    const cudaError_t sticky = rt.devices[stream->device].sticky;
    return sticky ? sticky : empty ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call([&](Runtime& rt, Lock& lock) {
    if (!function) return cudaErrorInvalidValue;
    return submit(rt, lock, handle,
                  {"host function", [=] { return function(data), Step::kDone; }, {}, {}});
  });
}

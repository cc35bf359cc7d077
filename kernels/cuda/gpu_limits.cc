#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "kernels/cuda/roofs.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/device.h"
#include "kernels/limits.h"

namespace headrace::kernels {
namespace {

using cuda::check;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kSmallestSet = 1 << 20;
constexpr double kSampleSeconds = 1e-3;  // what starting and ending takes counts for nothing then
constexpr size_t kSamplesMin = 5;
constexpr uint32_t kTimesMax = 1 << 24;
constexpr size_t kCopyBytes = 16 << 20;
constexpr size_t kPatternBytes = 1 << 20;
constexpr uint32_t kRounds = 4;  // of products; the least piece of work
constexpr int kLaunches = 32;
constexpr int kParts = 5;  // that are not reading

// Runs work on a stream of its own between two events and tells the rate that the better samples
// agree on.
class Prober {
 public:
  explicit Prober(int ordinal) : ordinal_(ordinal), stream_(ordinal), graphs_(ordinal) {
    check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, ordinal), ordinal,
          "its processors");
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), ordinal, "an event");
  }
  ~Prober() {
    for (const cudaEvent_t event : events_)
      if (event != nullptr) cudaEventDestroy(event);
  }
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // `work(times)` puts `amount` units of work on the stream, `times` times over.
  template <class F>
  double rate(double amount, double seconds, uint32_t times_max, const F& work) {
    const auto once = [&](uint32_t times) {
      check(cudaEventRecord(events_[0], stream_.get()), ordinal_, "an event");
      check(work(times), ordinal_, "a roof");
      check(cudaEventRecord(events_[1], stream_.get()), ordinal_, "an event");
      stream_.wait();
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), ordinal_, "a time");
      return std::max(static_cast<double>(milliseconds) * 1e-3, 1e-9);
    };
    const auto begin = Clock::now();
    const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    uint32_t times = 1;
    once(times);  // touches everything
    double took = once(times);
    while (took < kSampleSeconds && times < times_max) took = once(times *= 2);
    std::vector<double> rates{amount * times / took};
    while (spent() < seconds || (rates.size() < kSamplesMin && spent() < 2 * seconds))
      rates.push_back(amount * times / once(times));
    const auto p90 = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() * 9 / 10);
    std::nth_element(rates.begin(), p90, rates.end());
    return *p90;
  }

  cuda::Context context() const { return {.stream = stream_.get(), .processors = processors_}; }
  const cuda::Stream& stream() const { return stream_; }
  cuda::StepGraphs& graphs() { return graphs_; }
  int ordinal() const { return ordinal_; }
  int processors() const { return processors_; }
  Buffer memory(size_t bytes) const { return cuda::device_memory(ordinal_, bytes, stream_); }

 private:
  const int ordinal_;
  int processors_ = 1;
  cuda::Stream stream_;
  cuda::StepGraphs graphs_;
  cudaEvent_t events_[2] = {};
};

// Bits that change as those of weights do: moving zeros takes less power, so the clock is higher.
Buffer patterned(const Prober& prober, size_t bytes) {
  Buffer to = prober.memory(bytes);
  const Buffer pattern = cuda::pinned_memory(prober.ordinal(), std::min(bytes, kPatternBytes));
  uint64_t state = 1;
  for (size_t i = 0; i + 8 <= pattern.size(); i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    *reinterpret_cast<uint64_t*>(pattern.data() + i) = state ^ state >> 29;
  }
  const cudaStream_t stream = prober.stream().get();
  check(cudaMemcpyAsync(to.data(), pattern.data(), pattern.size(), cudaMemcpyHostToDevice, stream),
        prober.ordinal(), "a pattern");
  for (size_t have = pattern.size(); have < bytes; have *= 2)
    check(cudaMemcpyAsync(to.data() + have, to.data(), std::min(have, bytes - have),
                          cudaMemcpyDeviceToDevice, stream),
          prober.ordinal(), "a pattern");
  prober.stream().wait();
  return to;
}

double read_rate(Prober& prober, size_t bytes, double seconds) {
  const Buffer from = patterned(prober, bytes);
  const Buffer sum = prober.memory(sizeof(uint32_t));
  const size_t pieces = bytes / cuda::kRoofPieceBytes + 1;
  const auto most = static_cast<uint32_t>(std::min<size_t>(kTimesMax, 0x40000000 / pieces));
  return prober.rate(static_cast<double>(bytes), seconds, most, [&](uint32_t times) {
    return cuda::enqueue(cuda::ReadRoof{from.data(), bytes, times, sum.as<uint32_t>()},
                         prober.context());
  });
}

// Sets from the smallest up, while a sweep over one can be done in its share of the time and there
// is memory for it.
std::vector<ReadRate> read_rates(Prober& prober, double each, uint64_t bytes_max,
                                 const std::function<void()>& done) {
  std::vector<ReadRate> read;
  for (uint64_t set = kSmallestSet; set == kSmallestSet || set <= bytes_max; set *= 2) {
    if (!read.empty() && static_cast<double>(set) / read.back().bytes_per_second > each) break;
    try {
      read.push_back({set, read_rate(prober, set, each)});
    } catch (const std::bad_alloc&) {
      break;
    }
    done();
  }
  // What a large set can, a smaller one can as well: less was a disturbance.
  for (size_t i = read.size(); i-- > 1;)
    read[i - 1].bytes_per_second = std::max(read[i - 1].bytes_per_second, read[i].bytes_per_second);
  return read;
}

double product_rate(Prober& prober, double seconds) {
  const Buffer fragments = patterned(prober, cuda::kRoofFragmentWords * sizeof(uint32_t));
  const size_t threads = cuda::roof_threads(cuda::MmaRoof{}, prober.processors());
  const Buffer sums = prober.memory(threads * sizeof(float));
  cuda::MmaRoof op{fragments.as<uint32_t>(), kRounds, sums.as<float>()};
  const auto flops = static_cast<double>(cuda::cost(op, prober.processors()).flops);
  return prober.rate(flops, seconds, kTimesMax, [&](uint32_t times) {
    op.rounds = kRounds * times;
    return cuda::enqueue(op, prober.context());
  });
}

double copy_rate(Prober& prober, cudaMemcpyKind kind, double seconds) {
  const Buffer own = patterned(prober, kCopyBytes);
  const Buffer host = cuda::pinned_memory(prober.ordinal(), kCopyBytes);
  const bool in = kind == cudaMemcpyHostToDevice;
  return prober.rate(static_cast<double>(kCopyBytes), seconds, kTimesMax, [&](uint32_t times) {
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < times && error == cudaSuccess; i++)
      error = cudaMemcpyAsync((in ? own : host).data(), (in ? host : own).data(), kCopyBytes, kind,
                              prober.stream().get());
    return error;
  });
}

cudaError_t launches(const Prober& prober) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < kLaunches && error == cudaSuccess; i++)
    error = cuda::enqueue(cuda::LaunchRoof{}, prober.context());
  return error;
}

double launch_seconds(Prober& prober, double seconds) {
  return 1 / prober.rate(kLaunches, seconds, kTimesMax, [&](uint32_t times) {
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < times && error == cudaSuccess; i++) error = launches(prober);
    return error;
  });
}

double graph_seconds(Prober& prober, double seconds) {
  const cuda::StepShape shape{.rows = kLaunches};
  const cudaStream_t stream = prober.stream().get();
  prober.graphs().record(shape, stream,
                         [&] { check(launches(prober), prober.ordinal(), "a launch"); });
  return 1 / prober.rate(kLaunches, seconds, kTimesMax, [&](uint32_t times) {
    for (uint32_t i = 0; i < times; i++) prober.graphs().start(shape, stream);
    return cudaSuccess;
  });
}

GpuLimits measure(int ordinal, double seconds, uint64_t bytes_max,
                  const std::function<void(double)>& progress) {
  double sets = 1;
  for (uint64_t set = kSmallestSet * 2; set <= bytes_max; set *= 2) sets++;
  const double each = seconds / (sets + kParts);
  double done = 0;
  const std::function<void()> step = [&] { progress(std::min(1.0, ++done / (sets + kParts))); };
  Prober prober(ordinal);
  GpuLimits limits;
  limits.read = read_rates(prober, each, bytes_max, step);
  done = sets - 1;
  step();
  limits.bf16_flops_per_second = product_rate(prober, each);
  step();
  limits.to_device_bytes_per_second = copy_rate(prober, cudaMemcpyHostToDevice, each);
  step();
  limits.to_host_bytes_per_second = copy_rate(prober, cudaMemcpyDeviceToHost, each);
  step();
  limits.launch_seconds = launch_seconds(prober, each);
  step();
  limits.graph_seconds = graph_seconds(prober, each);
  step();
  return limits;
}

}  // namespace

GpuLimits measure_gpu_limits(int ordinal, double seconds, uint64_t bytes_max,
                             const std::function<void(double)>& progress) {
  try {
    return measure(ordinal, seconds, bytes_max, progress);
  } catch (const std::bad_alloc&) {
    throw DeviceError("cuda:" + std::to_string(ordinal) + ": no memory is left to measure with");
  }
}

}  // namespace headrace::kernels

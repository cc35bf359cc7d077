#include "tests/gpu/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "kernels/cuda/step_graphs.h"

namespace headrace::gpu {
namespace {

using cuda::check;
using kernels::Buffer;
using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 2e-4;  // what two events take counts for little then
constexpr size_t kSamples = 30;
constexpr size_t kSamplesTiny = 3;
constexpr size_t kPatternBytes = size_t{4} << 20;
constexpr int kRepeatsMax = 1000;

}  // namespace

void emit(const Json& row) {
  const std::string line = row.dump() + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

Times times_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  return {seconds[n / 2], seconds.front(), seconds[n * 9 / 10], n};
}

Bench::Bench(int ordinal, const Scale& scale) : ordinal_(ordinal), scale_(scale), stream_(ordinal) {
  check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, ordinal), ordinal,
        "its processors");
  for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), ordinal, "an event");
}

Bench::~Bench() {
  for (const cudaEvent_t event : events_)
    if (event != nullptr) cudaEventDestroy(event);
}

uint64_t Bench::memory_free() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), ordinal_, "its memory");
  return free;
}

Buffer Bench::memory(size_t bytes) const { return cuda::device_memory(ordinal_, bytes, stream_); }

void Bench::upload(const Buffer& to, const void* from, size_t bytes) const {
  if (bytes == 0) return;
  const Buffer pinned = cuda::pinned_memory(ordinal_, bytes);
  std::memcpy(pinned.data(), from, bytes);
  check(cudaMemcpyAsync(to.data(), pinned.data(), bytes, cudaMemcpyHostToDevice, stream()),
        ordinal_, "a copy");
  wait();
}

Buffer Bench::numbers(size_t bytes, uint32_t mask) const {
  std::vector<uint32_t> pattern(std::min(bytes, kPatternBytes) / 4 + 1);
  uint64_t state = 1;
  for (uint32_t& word : pattern) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = static_cast<uint32_t>(state >> 32) & mask;
  }
  Buffer to = memory(bytes);
  size_t have = std::min(bytes, kPatternBytes);
  upload(to, pattern.data(), have);
  for (; have < bytes; have *= 2)
    check(cudaMemcpyAsync(to.data() + have, to.data(), std::min(have, bytes - have),
                          cudaMemcpyDeviceToDevice, stream()),
          ordinal_, "a copy");
  wait();
  return to;
}

Times Bench::time(int count, const std::function<cudaError_t(int)>& launch) const {
  cuda::StepGraphs graphs(ordinal_);
  graphs.record({}, stream(), [&] {
    for (int i = 0; i < count; ++i) check(launch(i), ordinal_, "a launch");
  });
  const auto sample = [&](int repeats) {
    check(cudaEventRecord(events_[0], stream()), ordinal_, "an event");
    for (int i = 0; i < repeats; ++i) graphs.start({}, stream());
    check(cudaEventRecord(events_[1], stream()), ordinal_, "an event");
    wait();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), ordinal_, "a time");
    return std::max(1e-3 * double{milliseconds}, 1e-9);
  };
  sample(1);  // touches everything
  const double once = sample(1);
  const int repeats = std::clamp(static_cast<int>(kSampleSeconds / once) + 1, 1, kRepeatsMax);
  const size_t wanted = scale_.tiny ? kSamplesTiny : kSamples;
  std::vector<double> seconds;
  const auto begun = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  while (seconds.empty() || spent() < scale_.each ||
         (seconds.size() < wanted && spent() < 2 * scale_.each)) {
    seconds.push_back(sample(repeats) / (double{1} * repeats * count));
    if (scale_.tiny && seconds.size() >= wanted) break;
  }
  return times_of(std::move(seconds));
}

void Bench::measure(const std::string& op, const std::string& what, int32_t rows,
                    const kernels::Cost& cost, uint64_t working_set, int count,
                    const std::function<cudaError_t(int)>& launch) const {
  const Times t = time(count, launch);
  emit({{"op", op},
        {"shape", what},
        {"rows", rows},
        {"seconds", t.median},
        {"least", t.least},
        {"p90", t.p90},
        {"samples", t.samples},
        {"bytes", cost.bytes()},
        {"flops", cost.flops},
        {"working_set", std::max<uint64_t>(working_set, cost.bytes())}});
}

}  // namespace headrace::gpu

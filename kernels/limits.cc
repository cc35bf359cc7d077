#include "kernels/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/roofs.h"
#include "kernels/thread_pool.h"

namespace headrace::kernels {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr uint64_t kSmallestSet = 1 << 20;
constexpr double kSampleSeconds = 1e-3;  // long enough to forget the start of the threads
constexpr size_t kSamplesMin = 5;

Roofs roofs_of(CpuPath path) {
  switch (path) {
    case CpuPath::kAmx:
      return roofs_amx();
    case CpuPath::kAvx512Vnni:
      return roofs_avx512();
    case CpuPath::kAvx2:
      return roofs_avx2();
    case CpuPath::kPortable:
      break;
  }
  return roofs_portable();
}

// Runs loops on all threads and tells the rate that the better samples agree on. A neighbour on the
// machine only ever slows a sample down, so the limit is the 90th percentile, not the mean.
class Prober {
 public:
  explicit Prober(int threads) : pool_(threads) {}

  // `work(thread, times)` does `amount` units of work `times` times over, on all threads together.
  template <class F>
  double rate(double amount, double seconds, F work) {
    const auto once = [&](int64_t times) {
      auto f = [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; t++) work(static_cast<int>(t), times);
      };
      const auto start = Clock::now();
      parallel_for(pool_, pool_.threads(), 1, f);
      return Seconds(Clock::now() - start).count();
    };
    once(1);  // touches everything
    const double single = std::max(once(1), 1e-9);
    const auto times = static_cast<int64_t>(std::ceil(kSampleSeconds / single));
    std::vector<double> rates;
    const auto end = Clock::now() + Seconds(seconds);
    while (rates.size() < kSamplesMin || Clock::now() < end)
      rates.push_back(amount * static_cast<double>(times) / once(times));
    const auto p90 = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() * 9 / 10);
    std::nth_element(rates.begin(), p90, rates.end());
    return *p90;
  }

  int threads() const { return pool_.threads(); }
  void keep(uint64_t v) { sink_.fetch_add(v, std::memory_order_relaxed); }

 private:
  ThreadPool pool_;
  std::atomic<uint64_t> sink_{0};
};

ReadRate read_rate(Prober& prober, const Roofs& roofs, const std::byte* from, uint64_t bytes,
                   double seconds) {
  const auto threads = static_cast<uint64_t>(prober.threads());
  // A little less than an even share keeps the threads' streams off large powers of two.
  const size_t share = bytes / threads / 64 * 64;
  const double rate =
      prober.rate(static_cast<double>(share * threads), seconds, [&](int thread, int64_t times) {
        for (int64_t i = 0; i < times; i++)
          prober.keep(roofs.read(from + share * static_cast<size_t>(thread), share));
      });
  return {share * threads, rate};
}

}  // namespace

CpuLimits measure_cpu_limits(CpuPath path, int threads, double seconds, uint64_t bytes_max,
                             const std::function<void(double)>& progress) {
  KERNELS_CHECK(supported(path));
  KERNELS_CHECK(threads >= 1);
  const Roofs roofs = roofs_of(path);
  std::vector<uint64_t> sets;
  for (uint64_t s = kSmallestSet; s <= bytes_max; s *= 2) sets.push_back(s);
  if (sets.empty()) sets.push_back(kSmallestSet);
  if (bytes_max > sets.back()) sets.push_back(bytes_max / 64 * 64);

  const double each = seconds / static_cast<double>(sets.size() + 2);
  double done = 0;
  const auto step = [&] { progress((done += 1) / static_cast<double>(sets.size() + 2)); };
  Prober prober(threads);
  Buffer memory(sets.back());
  // Pages that nobody wrote are all one page of zeros, which any cache holds.
  std::memset(memory.data(), 0x5a, memory.size());

  CpuLimits limits;
  for (uint64_t set : sets) {
    limits.read.push_back(read_rate(prober, roofs, memory.data(), set, each / 2));
    step();
  }
  // Neighbours come and go: what disturbed a set the first time has often left by the second.
  for (ReadRate& r : limits.read) {
    const ReadRate again = read_rate(prober, roofs, memory.data(), r.working_set, each / 2);
    r.bytes_per_second = std::max(r.bytes_per_second, again.bytes_per_second);
  }
  // What a large set can, a smaller one can as well: less was a disturbance.
  for (size_t i = limits.read.size(); i-- > 1;) {
    double& nearer = limits.read[i - 1].bytes_per_second;
    nearer = std::max(nearer, limits.read[i].bytes_per_second);
  }
  constexpr int64_t kRounds = 20'000;
  const auto work = static_cast<double>(kRounds * threads);
  limits.int8_ops_per_second =
      prober.rate(work * static_cast<double>(roofs.int8_ops), each,
                  [&](int, int64_t times) { prober.keep(roofs.int8(kRounds * times)); });
  step();
  limits.f32_flops_per_second =
      prober.rate(work * static_cast<double>(roofs.f32_flops), each,
                  [&](int, int64_t times) { prober.keep(roofs.f32(kRounds * times) != 0); });
  step();
  return limits;
}

ReadRate measure_read(CpuPath path, int threads, uint64_t bytes, double seconds) {
  KERNELS_CHECK(supported(path));
  KERNELS_CHECK(threads >= 1);
  bytes = std::max(bytes, kSmallestSet);
  Prober prober(threads);
  Buffer memory(bytes);
  std::memset(memory.data(), 0x5a, memory.size());
  return read_rate(prober, roofs_of(path), memory.data(), bytes, seconds);
}

double read_limit(const CpuLimits& limits, uint64_t working_set) {
  if (limits.read.empty()) return 0;
  const ReadRate* before = nullptr;
  for (const ReadRate& rate : limits.read) {
    if (working_set <= rate.working_set) {
      if (before == nullptr) return rate.bytes_per_second;
      // Straight between two measured points over the logarithm of the set.
      const auto at = [](uint64_t bytes) { return std::log2(static_cast<double>(bytes)); };
      const double share = (at(working_set) - at(before->working_set)) /
                           (at(rate.working_set) - at(before->working_set));
      return before->bytes_per_second + share * (rate.bytes_per_second - before->bytes_per_second);
    }
    before = &rate;
  }
  return before->bytes_per_second;
}

}  // namespace headrace::kernels

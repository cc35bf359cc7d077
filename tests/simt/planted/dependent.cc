#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/planted/plants.h"

// Mistakes of a launch that may begin before the one in front has ended.
namespace headrace::simt::planted {

using namespace headrace::cuda;

namespace {

constexpr unsigned kBlocks = 3;
constexpr unsigned kThreads = 64;

enum class Wait : uint8_t { kAll, kNone, kOneWithoutBarrier };

__global__ void produce(int* middle) {
  grid_dependency_trigger();
  middle[blockIdx.x * kThreads + threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
}

__global__ void consume(const int* middle, int* out, Wait wait) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (wait == Wait::kAll || (wait == Wait::kOneWithoutBarrier && threadIdx.x == 0)) {
    grid_dependency_wait();
  }
  out[i] = middle[i] * 2;
}

Outcome run_pair(Wait wait) {
  std::vector<int> middle(kBlocks * kThreads);
  std::vector<int> out(middle.size());
  Launch pair[] = {
      make_launch("produce", kBlocks, kThreads, 0, produce, middle.data()),
      make_launch("consume", kBlocks, kThreads, 0, consume, middle.data(), out.data(), wait)};
  pair[1].dependent = true;
  auto fault = run_grids(pair);
  bool right = true;
  for (unsigned i = 0; i < out.size(); ++i)
    right &= out[i] == static_cast<int>(i % kThreads + 1) * 2;
  return {fault, right};
}

Outcome forgotten_wait(bool planted) { return run_pair(planted ? Wait::kNone : Wait::kAll); }
Outcome one_thread_waits(bool planted) {
  return run_pair(planted ? Wait::kOneWithoutBarrier : Wait::kAll);
}

}  // namespace

std::span<const Plant> dependent_plants() {
  using enum Sees;
  static constexpr Plant kPlants[] = {
      {"forgotten dependency wait", forgotten_wait, kFault, kFault, kFault},
      {"one thread's dependency wait", one_thread_waits, kValues, kValues, kReport},
  };
  return kPlants;
}

}  // namespace headrace::simt::planted

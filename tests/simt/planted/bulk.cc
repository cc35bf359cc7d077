#include <numeric>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/planted/plants.h"

// Mistakes with barriers in shared memory and bulk copies.
namespace headrace::simt::planted {

using namespace headrace::cuda;

namespace {

constexpr unsigned kThreads = 64;
constexpr unsigned kStages = 2;
constexpr unsigned kTiles = 5;
constexpr unsigned kTileBytes = kThreads * sizeof(int);

enum class Mistake : uint8_t {
  kNone,
  kCount,      // arrivals of a phase
  kBytes,      // less than the copy brings
  kNoWait,     // reads without waiting
  kNoRelease,  // refills a stage without waiting for its readers
  kNoFence,    // between mbar_init and the copy
  kNoBarrier,  // between mbar_init and the other threads
};

struct Ring {
  alignas(128) int stages[kStages][kThreads];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Thread 0 fills the stages, all read them.
__global__ void ring(const int* in, int* out, Mistake mistake) {
  HEADRACE_SHARED(Ring, shared);
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < kStages; ++stage) {
      mbar_init(&shared->full[stage], mistake == Mistake::kCount ? 2 : 1);
      mbar_init(&shared->empty[stage], kThreads);
    }
    if (mistake != Mistake::kNoFence) mbar_fence_init();
  }
  if (mistake != Mistake::kNoBarrier) syncthreads();
  const auto fetch = [&](unsigned tile) {
    const unsigned stage = tile % kStages;
    if (mistake != Mistake::kNoRelease) {
      mbar_wait(&shared->empty[stage], (tile / kStages & 1) ^ 1);
    }
    mbar_expect_tx(&shared->full[stage], mistake == Mistake::kBytes ? kTileBytes / 2 : kTileBytes);
    bulk_to_shared(shared->stages[stage], in + tile * kThreads, kTileBytes, &shared->full[stage]);
  };
  if (threadIdx.x == 0) fetch(0);
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    const unsigned stage = tile % kStages;
    if (threadIdx.x == 0 && tile + 1 < kTiles) fetch(tile + 1);
    if (mistake != Mistake::kNoWait) mbar_wait(&shared->full[stage], tile / kStages & 1);
    out[tile * kThreads + threadIdx.x] = shared->stages[stage][kThreads - 1 - threadIdx.x];
    mbar_arrive(&shared->empty[stage]);
  }
}

Outcome run_ring(Mistake mistake) {
  std::vector<uint4> words(kTiles * kThreads / 4);
  int* in = reinterpret_cast<int*>(words.data());
  std::iota(in, in + kTiles * kThreads, 1);
  std::vector<int> out(kTiles * kThreads);
  auto fault =
      run_grid(make_launch("ring", 1, kThreads, sizeof(Ring), ring, in, out.data(), mistake));
  bool right = true;
  for (unsigned i = 0; i < out.size(); ++i) {
    right &= out[i] == in[i / kThreads * kThreads + kThreads - 1 - i % kThreads];
  }
  return {fault, right};
}

template <Mistake kMistake>
Outcome plant(bool planted) {
  return run_ring(planted ? kMistake : Mistake::kNone);
}

}  // namespace

std::span<const Plant> bulk_plants() {
  using enum Sees;
  static constexpr Plant kPlants[] = {
      {"wrong mbarrier count", plant<Mistake::kCount>, kFault, kFault, kFault},
      {"wrong mbarrier bytes", plant<Mistake::kBytes>, kFault, kFault, kFault},
      {"missing mbarrier wait", plant<Mistake::kNoWait>, kFault, kFault, kReport},
      {"stage refilled without its readers", plant<Mistake::kNoRelease>, kFault, kFault, kReport},
      {"missing mbarrier fence", plant<Mistake::kNoFence>, kFault, kFault, kFault},
      {"mbarrier used before its init", plant<Mistake::kNoBarrier>, kFault, kFault, kFault},
  };
  return kPlants;
}

}  // namespace headrace::simt::planted

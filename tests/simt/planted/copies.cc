#include <numeric>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/planted/plants.h"

// Mistakes with cp.async.
namespace headrace::simt::planted {

using namespace headrace::cuda;

namespace {

constexpr unsigned kThreads = 64;
constexpr unsigned kWords = kThreads * 4;  // a copy moves four

struct Switches {
  bool wait = true;    // before what was copied is read
  bool commit = true;  // before the wait
  bool leave = false;  // with a copy still on its way
};

__global__ void reverse(const int* in, int* out, Switches switches) {
  HEADRACE_SHARED(int, staged);
  cp_async16(staged + threadIdx.x * 4, in + threadIdx.x * 4);
  if (switches.commit) cp_commit();
  if (switches.wait) cp_wait<0>();
  syncthreads();
  for (unsigned i = threadIdx.x * 4; i < threadIdx.x * 4 + 4; ++i) out[i] = staged[kWords - 1 - i];
  syncthreads();
  if (switches.leave) cp_async16(staged + threadIdx.x * 4, in);
  if (!switches.commit || switches.leave) cp_commit();
  if (!switches.leave) cp_wait<0>();
}

Outcome run_reverse(Switches switches) {
  std::vector<uint4> words(kThreads);  // aligned to 16 bytes
  int* in = reinterpret_cast<int*>(words.data());
  std::iota(in, in + kWords, 1);
  std::vector<int> out(kWords);
  auto fault = run_grid(
      make_launch("reverse", 1, kThreads, kWords * sizeof(int), reverse, in, out.data(), switches));
  return {fault, std::equal(out.rbegin(), out.rend(), in)};
}

Outcome missing_wait(bool planted) { return run_reverse({.wait = !planted}); }
Outcome missing_commit(bool planted) { return run_reverse({.commit = !planted}); }
Outcome leaving_with_copies(bool planted) { return run_reverse({.leave = planted}); }

constexpr unsigned kStages = 2;
constexpr unsigned kTiles = 5;

// A ring of two stages. The mistake refills a stage while others may still read it.
__global__ void ring(const int* in, int* out, bool planted) {
  HEADRACE_SHARED(int, stages);
  const unsigned own = threadIdx.x * 4;
  const auto fetch = [&](unsigned tile) {
    if (tile < kTiles) cp_async16(stages + tile % kStages * kWords + own, in + tile * kWords + own);
    cp_commit();
  };
  fetch(0);
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    fetch(tile + 1);
    cp_wait<1>();
    syncthreads();
    for (unsigned i = own; i < own + 4; ++i) {
      out[tile * kWords + i] = stages[tile % kStages * kWords + kWords - 1 - i];
    }
    if (!planted) syncthreads();
  }
  cp_wait<0>();
}

Outcome ring_refill(bool planted) {
  std::vector<uint4> words(kTiles * kThreads);
  int* in = reinterpret_cast<int*>(words.data());
  std::iota(in, in + kTiles * kWords, 1);
  std::vector<int> out(kTiles * kWords);
  auto fault = run_grid(make_launch("ring", 1, kThreads, kStages * kWords * sizeof(int), ring, in,
                                    out.data(), planted));
  bool right = true;
  for (unsigned i = 0; i < out.size(); ++i) {
    right &= out[i] == in[i / kWords * kWords + kWords - 1 - i % kWords];
  }
  return {fault, right};
}

}  // namespace

std::span<const Plant> copy_plants() {
  using enum Sees;
  static constexpr Plant kPlants[] = {
      {"missing cp.async wait", missing_wait, kValues, kValues, kReport},
      {"missing cp.async commit", missing_commit, kValues, kValues, kReport},
      {"cp.async ring refilled early", ring_refill, kValues, kValues, kReport},
      {"leaving with copies pending", leaving_with_copies, kFault, kFault, kFault},
  };
  return kPlants;
}

}  // namespace headrace::simt::planted

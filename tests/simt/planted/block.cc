#include <numeric>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/planted/plants.h"

// Mistakes among the threads of a block, and among blocks.
namespace headrace::simt::planted {

using namespace headrace::cuda;

namespace {

constexpr unsigned kThreads = 64;

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

__global__ void reverse(const float* in, float* out, bool planted) {
  HEADRACE_SHARED(float, staged);
  staged[threadIdx.x] = in[threadIdx.x];
  if (!planted) syncthreads();
  out[threadIdx.x] = staged[kThreads - 1 - threadIdx.x];
}

Outcome missing_barrier(bool planted) {
  const std::vector<float> in = numbers(kThreads);
  std::vector<float> out(kThreads);
  auto fault = run_grid(make_launch("reverse", 1, kThreads, kThreads * sizeof(float), reverse,
                                    in.data(), out.data(), planted));
  return {fault, std::equal(in.rbegin(), in.rend(), out.begin())};
}

constexpr unsigned kTiles = 3;

// Each tile is staged where the one before it was.
__global__ void reverse_tiles(const float* in, float* out, bool planted) {
  HEADRACE_SHARED(float, staged);
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    if (tile > 0 && !planted) syncthreads();
    staged[threadIdx.x] = in[tile * kThreads + threadIdx.x];
    syncthreads();
    out[tile * kThreads + threadIdx.x] = staged[kThreads - 1 - threadIdx.x];
  }
}

Outcome refill_race(bool planted) {
  const std::vector<float> in = numbers(kTiles * kThreads);
  std::vector<float> out(in.size());
  auto fault = run_grid(make_launch("reverse_tiles", 1, kThreads, kThreads * sizeof(float),
                                    reverse_tiles, in.data(), out.data(), planted));
  bool right = true;
  for (unsigned i = 0; i < in.size(); ++i) {
    right &= out[i] == in[i / kThreads * kThreads + kThreads - 1 - i % kThreads];
  }
  return {fault, right};
}

__global__ void branches(float* out, bool planted) {
  if (planted && threadIdx.x < 32) {
    syncthreads();
  } else {
    syncthreads();
  }
  out[threadIdx.x] = 1;
}

// Good: the second branch is the one all take.
Outcome divergent_barrier(bool planted) {
  std::vector<float> out(kThreads);
  auto fault = run_grid(make_launch("branches", 1, kThreads, 0, branches, out.data(), planted));
  return {fault, true};
}

__global__ void early_return(float* out, unsigned count, bool planted) {
  if (planted && threadIdx.x >= count) return;
  syncthreads();
  if (threadIdx.x < count) out[threadIdx.x] = 1;
}

Outcome return_before_barrier(bool planted) {
  std::vector<float> out(kThreads / 2);
  auto fault = run_grid(
      make_launch("early_return", 1, kThreads, 0, early_return, out.data(), kThreads / 2, planted));
  return {fault, true};
}

__global__ void count_blocks(unsigned* count, bool planted) {
  if (threadIdx.x > 0) return;
  if (planted) {
    *count += 1;
  } else {
    atomic_add(count, 1u);
  }
}

Outcome race_between_blocks(bool planted) {
  unsigned count = 0;
  auto fault = run_grid(make_launch("count_blocks", 6, 32, 0, count_blocks, &count, planted));
  return {fault, count == 6};
}

// Blocks 0 and `distance` write the same word.
__global__ void write_far(unsigned* words, unsigned distance, bool planted) {
  if (threadIdx.x == 0) words[planted ? blockIdx.x % distance : blockIdx.x] = 1;
}

template <unsigned kDistance>
Outcome race_of_far_blocks(bool planted) {
  std::vector<unsigned> words(kDistance + 1);
  auto fault = run_grid(
      make_launch("write_far", kDistance + 1, 32, 0, write_far, words.data(), kDistance, planted));
  return {fault, words[0] == 1};
}

// The last block to come adds up what all have written.
__global__ void sum_last(float* parts, unsigned* arrived, float* sum, bool planted) {
  if (threadIdx.x > 0) return;
  parts[blockIdx.x] = static_cast<float>(blockIdx.x);
  if (!planted) thread_fence();
  if (atomic_add(arrived, 1u) + 1 < gridDim.x) return;
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += parts[i];
}

Outcome missing_fence(bool planted) {
  std::vector<float> parts(5);
  unsigned arrived = 0;
  float sum = 0;
  auto fault =
      run_grid(make_launch("sum_last", 5, 32, 0, sum_last, parts.data(), &arrived, &sum, planted));
  return {fault, sum == 10};
}

// Looks at the entry behind its own, which the last thread does not have; the value is not used.
__global__ void look_ahead(const volatile int* table, int* out, int entries, bool planted) {
  const int i = static_cast<int>(threadIdx.x);
  const bool last = i + 1 == entries;
  const int ahead = last && !planted ? 0 : table[i + 1];
  out[i] = table[i] + (last ? 0 : ahead);
}

Outcome read_past_table(bool planted) {
  constexpr int kEntries = 30;
  // Large, so that memory of its own follows it, which no other allocation had before.
  constexpr size_t kBefore = size_t{1} << 20;
  const std::vector<int> table(kBefore + kEntries, 7);
  std::vector<int> out(kEntries);
  auto fault = run_grid(make_launch("look_ahead", 1, kEntries, 0, look_ahead,
                                    table.data() + kBefore, out.data(), kEntries, planted));
  return {fault, out[0] == 14 && out[kEntries - 1] == 7};
}

__global__ void fill_shared(bool planted) {
  HEADRACE_SHARED(float, staged);
  staged[threadIdx.x + (planted ? 1 : 0)] = 1;
}

Outcome write_past_shared(bool planted) {
  return {run_grid(make_launch("fill_shared", 2, 32, 32 * sizeof(float), fill_shared, planted)),
          true};
}

}  // namespace

std::span<const Plant> block_plants() {
  using enum Sees;
  static constexpr Plant kPlants[] = {
      {"missing barrier", missing_barrier, kValues, kValues, kReport},
      {"refill race", refill_race, kValues, kValues, kReport},
      {"divergent barrier", divergent_barrier, kFault, kFault, kFault},
      {"return before barrier", return_before_barrier, kFault, kFault, kFault},
      {"race between blocks", race_between_blocks, kNothing, kNothing, kReport},
      {"race between distant blocks", race_of_far_blocks<8>, kNothing, kNothing, kReport},
      {"missing fence", missing_fence, kNothing, kNothing, kReport},
      {"read past table", read_past_table, kNothing, kReport, kNothing},
      {"write past shared memory", write_past_shared, kFault, kReport, kFault},
  };
  return kPlants;
}

}  // namespace headrace::simt::planted

#include "kernels/cuda/dev.h"
#include "kernels/cuda/logit_order.h"
#include "kernels/cuda/logits.h"

// Two launches. Slices: a block reads its logits once into registers, gives their largest, the sum
// of their powers and, by as many rounds of "the least place behind the last one", its best tokens.
// Rows: a block adds the slices up in their order, and picks the best of the slices' best alike.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = kSliceThreads / kWarp;

// A slice's share of a row's sum.
struct Part {
  double sum;     // of e^(x - largest); 0 if all are minus infinity
  float largest;  // NaN left out
  uint32_t bad;   // a NaN or +infinity is among them: then the row has no sum
};

struct Shared {
  double sums[kSliceThreads];
  Place places[2][kWarps];  // rounds take turns
  float largest[kWarps];
  uint32_t bad[kWarps];
};

// Least place of the block; `round` counts the calls.
__device__ __forceinline__ Place least_of_block(Place place, Shared* shared, unsigned round) {
  place = least_of_warp(place);
  Place* places = shared->places[round % 2];
  if (threadIdx.x % kWarp == 0) places[threadIdx.x / kWarp] = place;
  syncthreads();
  for (unsigned w = 0; w < kWarps; w++) place = lesser(place, places[w]);
  return place;
}

// Sum over the block, in an order of the threads alone; the same in each.
__device__ __forceinline__ double sum_of_block(double sum, Shared* shared) {
  shared->sums[threadIdx.x] = sum;
  syncthreads();
  for (unsigned stride = kSliceThreads / 2; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) shared->sums[threadIdx.x] += shared->sums[threadIdx.x + stride];
    syncthreads();
  }
  return shared->sums[0];
}

// The same in each thread.
__device__ __forceinline__ Part part_of(const SliceLogits& held, unsigned vocab, Shared* shared) {
  Part part{0, -INFINITY, 0};
#pragma unroll
  for (unsigned i = 0; i < kSliceVectors * 4; i++) {
    if (held.id(i) >= vocab) continue;
    part.bad |= is_nan(held.x[i]) || held.x[i] == INFINITY;
    part.largest = fmaxf(part.largest, held.x[i]);
  }
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    part.largest = fmaxf(part.largest, shfl_xor(kFullMask, part.largest, lanes));
    part.bad |= shfl_xor(kFullMask, part.bad, lanes);
  }
  if (threadIdx.x % kWarp == 0) {
    shared->largest[threadIdx.x / kWarp] = part.largest;
    shared->bad[threadIdx.x / kWarp] = part.bad;
  }
  syncthreads();
  for (unsigned w = 0; w < kWarps; w++) {
    part.largest = fmaxf(part.largest, shared->largest[w]);
    part.bad |= shared->bad[w];
  }
  double sum = 0;
  if (part.largest > -INFINITY && part.bad == 0) {
#pragma unroll
    for (unsigned i = 0; i < kSliceVectors * 4; i++) {
      if (held.id(i) < vocab) sum += exp(double{held.x[i]} - part.largest);
    }
  }
  part.sum = sum_of_block(sum, shared);
  return part;
}

__global__ void __launch_bounds__(kSliceThreads)
    log_probs_slices_kernel(const float* logits, const int32_t* chosen, const int32_t* counts,
                            unsigned vocab, size_t stride, unsigned slices, unsigned top,
                            Part* parts, Place* places) {
  HEADRACE_SHARED(Shared, shared);
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x / slices;
  if (chosen[row] < 0 || counts[row] <= 0) return;
  SliceLogits held;
  held.load(logits + row * stride, blockIdx.x % slices, vocab);
  const Part part = part_of(held, vocab, shared);
  if (threadIdx.x == 0) parts[blockIdx.x] = part;
  const unsigned wanted = lesser(static_cast<unsigned>(counts[row]), top);
  Place last = 0;  // no number has it
  for (unsigned n = 0; n < wanted; n++) {
    Place best = kNoPlace;
#pragma unroll
    for (unsigned i = 0; i < kSliceVectors * 4; i++) {
      const Place place = place_of(held.x[i], held.id(i));
      if (held.id(i) < vocab && place > last && place < best) best = place;
    }
    last = least_of_block(best, shared, n);
    if (threadIdx.x == 0) places[size_t{blockIdx.x} * top + n] = last;
  }
}

__device__ __forceinline__ float bounded(double x) {
  return x > kernels::kLogprobMin ? static_cast<float>(x) : kernels::kLogprobMin;
}

// ln of the row's sum of powers; NaN where it has none.
__device__ __forceinline__ double log_sum_of(const Part* parts, unsigned slices, Shared* shared) {
  float largest = -INFINITY;
  uint32_t bad = 0;
  for (unsigned s = 0; s < slices; s++) {
    largest = fmaxf(largest, parts[s].largest);
    bad |= parts[s].bad;
  }
  double sum = 0;
  for (unsigned s = threadIdx.x; s < slices; s += kSliceThreads) {
    if (parts[s].sum > 0) sum += parts[s].sum * exp(double{parts[s].largest} - largest);
  }
  sum = sum_of_block(sum, shared);
  return bad != 0 || largest == -INFINITY ? NAN : largest + log(sum);
}

struct Out {
  float* chosen;
  int32_t* ids;
  float* values;
};

__global__ void __launch_bounds__(kSliceThreads)
    log_probs_rows_kernel(const float* logits, const int32_t* chosen, const int32_t* counts,
                          unsigned vocab, size_t stride, unsigned slices, unsigned top,
                          const Part* parts, const Place* places, Out out) {
  HEADRACE_SHARED(Shared, shared);
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x;
  if (chosen[row] < 0 || counts[row] <= 0) return;
  const unsigned wanted = lesser(static_cast<unsigned>(counts[row]), top);
  const Place* candidates = places + row * slices * top;
  const double log_sum = log_sum_of(parts + row * slices, slices, shared);
  if (threadIdx.x == 0) {
    const auto id = static_cast<unsigned>(chosen[row]);
    out.chosen[row] =
        id < vocab ? bounded(logits[row * stride + id] - log_sum) : kernels::kLogprobMin;
  }
  Place last = 0;
  for (unsigned n = 0; n < wanted; n++) {
    Place best = kNoPlace;
    for (unsigned i = threadIdx.x; i < slices * wanted; i += kSliceThreads) {
      const Place place = candidates[size_t{i / wanted} * top + i % wanted];
      if (place > last && place < best) best = place;
    }
    last = least_of_block(best, shared, n);
    if (threadIdx.x == 0) {
      out.ids[row * top + n] = last == kNoPlace ? -1 : static_cast<int32_t>(last & 0xffffffffu);
      out.values[row * top + n] =
          last == kNoPlace ? kernels::kLogprobMin : bounded(logit_of(last) - log_sum);
    }
  }
}

size_t parts_bytes(const kernels::LogProbs& op) {
  const size_t bytes = static_cast<size_t>(op.rows) * slices_of(op.vocab) * sizeof(Part);
  return (bytes + 255) / 256 * 256;
}

}  // namespace

size_t workspace_bytes(const kernels::LogProbs& op) {
  return parts_bytes(op) + static_cast<size_t>(op.rows) * slices_of(op.vocab) *
                               static_cast<size_t>(op.top) * sizeof(Place);
}

cudaError_t enqueue(const kernels::LogProbs& op, const Context& context) {
  if (!logits_fit(op.logits, op.rows, op.vocab, op.stride, kLogitsVocabMax) || op.top < 0 ||
      op.top > kLogProbsTopMax) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.vocab == 0 || op.top == 0) return cudaSuccess;
  if (context.workspace_bytes < workspace_bytes(op)) return cudaErrorInvalidValue;
  auto* parts = static_cast<Part*>(context.workspace);
  auto* places = reinterpret_cast<Place*>(static_cast<char*>(context.workspace) + parts_bytes(op));
  const unsigned slices = slices_of(op.vocab);
  const auto rows = static_cast<unsigned>(op.rows);
  const auto vocab = static_cast<unsigned>(op.vocab);
  const auto stride = static_cast<size_t>(op.stride);
  const auto top = static_cast<unsigned>(op.top);
  const cudaError_t error =
      launch_dependent("log_probs_slices", context.stream, dim3(rows * slices), dim3(kSliceThreads),
                       sizeof(Shared), log_probs_slices_kernel, op.logits, op.chosen, op.counts,
                       vocab, stride, slices, top, parts, places);
  if (error != cudaSuccess) return error;
  return launch_dependent("log_probs_rows", context.stream, dim3(rows), dim3(kSliceThreads),
                          sizeof(Shared), log_probs_rows_kernel, op.logits, op.chosen, op.counts,
                          vocab, stride, slices, top, parts, places,
                          Out{op.chosen_logprob, op.top_ids, op.top_logprobs});
}

}  // namespace headrace::cuda

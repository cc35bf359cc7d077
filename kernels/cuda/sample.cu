#include "kernels/cuda/dev.h"
#include "kernels/cuda/logit_order.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/sample_memory.h"

// Three launches. Scan: the least place of each slice; greedy rows want no more. Weigh: weights,
// counted and added up by their size in buckets, slice by slice and then in global memory, all in
// integers, so that no order of blocks matters. Pick: a block a row asks the buckets where a count
// or a sum of weights is reached: by top-k, by top-p, by the uniform. The bucket that holds the
// border is looked up in the row, and its tokens, a few as a rule, are ranked by comparing all with
// all; too many are first narrowed down by digits of their places.

namespace headrace::cuda {
namespace {

using kernels::SampleRow;
using Sum = unsigned long long;

constexpr unsigned kWarp = 32;
constexpr double kOne = Sum{1} << kSampleWeightBits;

__device__ __forceinline__ bool is_greedy(const SampleRow& row) {
  return !(row.temperature >= kernels::kGreedyTemperature);
}

// How weights of a row come from its logits.
struct Scale {
  double largest;
  double inverse;  // of the temperature

  __device__ __forceinline__ double exact(float x) const { return exp((x - largest) * inverse); }
  __device__ __forceinline__ Sum parts(double weight) const {
    return static_cast<Sum>(weight * kOne + 0.5);
  }
};

// The leading bit and the five behind it, from the largest weight down. Of parts > 0.
constexpr unsigned kMantissaBits = 5;
static_assert(kSampleBuckets == (kSampleWeightBits << kMantissaBits) + 1);
__device__ __forceinline__ unsigned bucket_of(Sum parts) {
  unsigned bit = 0;
#pragma unroll
  for (unsigned step = 32; step > 0; step /= 2) {
    if (parts >> (bit + step) != 0) bit += step;
  }
  const auto fraction = static_cast<unsigned>(parts << kMantissaBits >> bit);
  return kSampleBuckets - 1 - ((bit << kMantissaBits) + fraction - (1u << kMantissaBits));
}

// ---- Scan

struct ScanShared {
  Place places[kSliceThreads / kWarp];
};

__global__ void __launch_bounds__(kSliceThreads)
    sample_scan_kernel(const float* logits, unsigned vocab, size_t stride, unsigned slices,
                       SampleMemory memory) {
  HEADRACE_SHARED(ScanShared, shared);
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x / slices;
  const unsigned slice = blockIdx.x % slices;
  for (unsigned b = slice * kSliceThreads + threadIdx.x; b < kSampleBuckets;
       b += slices * kSliceThreads) {
    memory.counts[row * kSampleBuckets + b] = 0;
    memory.sums[row * kSampleBuckets + b] = 0;
  }
  if (slice == 0 && threadIdx.x == 0) {
    memory.kept_counts[row] = 0;
    memory.kept_sums[row] = 0;
  }
  SliceLogits held;
  held.load(logits + row * stride, slice, vocab);
  Place best = kNoPlace;
#pragma unroll
  for (unsigned i = 0; i < kSliceVectors * 4; i++) {
    if (held.id(i) >= vocab) continue;
    const Place place = is_nan(held.x[i]) ? kNaNPlace : place_of(held.x[i], held.id(i));
    best = lesser(best, place);
  }
  best = least_of_warp(best);
  if (threadIdx.x % kWarp == 0) shared->places[threadIdx.x / kWarp] = best;
  syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned w = 0; w < kSliceThreads / kWarp; w++) best = lesser(best, shared->places[w]);
  memory.best[blockIdx.x] = best;
}

// Of the row, the same in each lane of each warp.
__device__ __forceinline__ Place best_of_row(const SampleMemory& memory, size_t row,
                                             unsigned slices) {
  Place best = kNoPlace;
  for (unsigned s = threadIdx.x % kWarp; s < slices; s += kWarp) {
    best = lesser(best, memory.best[row * slices + s]);
  }
  return least_of_warp(best);
}
__device__ __forceinline__ bool usable(Place best) {
  return best != kNaNPlace && fabsf(logit_of(best)) < INFINITY;
}

// ---- Weigh

struct WeighShared {
  Sum sums[kSampleBuckets];
  unsigned counts[kSampleBuckets];
  Sum kept_sum;  // of weights that min-p keeps
  unsigned kept_count;
};

__global__ void __launch_bounds__(kSliceThreads)
    sample_weigh_kernel(const float* logits, const SampleRow* params, unsigned vocab, size_t stride,
                        unsigned slices, SampleMemory memory) {
  HEADRACE_SHARED(WeighShared, shared);
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t row = blockIdx.x / slices;
  if (is_greedy(params[row])) return;
  const Place best = best_of_row(memory, row, slices);
  if (!usable(best)) return;
  for (unsigned b = threadIdx.x; b < kSampleBuckets; b += kSliceThreads) {
    shared->sums[b] = 0;
    shared->counts[b] = 0;
  }
  if (threadIdx.x == 0) {
    shared->kept_sum = 0;
    shared->kept_count = 0;
  }
  syncthreads();
  const Scale scale{logit_of(best), 1.0 / params[row].temperature};
  const double least = params[row].min_p;
  SliceLogits held;
  held.load(logits + row * stride, blockIdx.x % slices, vocab);
  Sum kept_sum = 0;
  unsigned kept_count = 0;
#pragma unroll
  for (unsigned i = 0; i < kSliceVectors * 4; i++) {
    if (held.id(i) >= vocab) continue;
    const double weight = scale.exact(held.x[i]);
    const Sum parts = scale.parts(weight);
    if (parts == 0) continue;
    const unsigned b = bucket_of(parts);
    atomic_add(&shared->sums[b], parts);
    atomic_add(&shared->counts[b], 1u);
    if (weight >= least) {
      kept_sum += parts;
      kept_count++;
    }
  }
  if (least > 0 && kept_count > 0) {
    atomic_add(&shared->kept_sum, kept_sum);
    atomic_add(&shared->kept_count, kept_count);
  }
  syncthreads();
  for (unsigned b = threadIdx.x; b < kSampleBuckets; b += kSliceThreads) {
    if (shared->counts[b] == 0) continue;
    atomic_add(&memory.sums[row * kSampleBuckets + b], shared->sums[b]);
    atomic_add(&memory.counts[row * kSampleBuckets + b], shared->counts[b]);
  }
  if (threadIdx.x == 0 && shared->kept_count > 0) {
    atomic_add(&memory.kept_sums[row], shared->kept_sum);
    atomic_add(&memory.kept_counts[row], shared->kept_count);
  }
}

// ---- Pick

constexpr unsigned kPickThreads = 512;
constexpr unsigned kPickWarps = kPickThreads / kWarp;
constexpr unsigned kBins = 2048;
constexpr unsigned kBinsOfThread = kBins / kPickThreads;
constexpr unsigned kDigitBits = 11;
constexpr unsigned kListed = kPickThreads;  // tokens ranked by comparing all with all
static_assert(kSampleBuckets <= kBins && 1u << kDigitBits == kBins);

struct Mass {
  Sum sum;
  unsigned count;
};
__device__ __forceinline__ Mass operator+(const Mass& a, const Mass& b) {
  return {a.sum + b.sum, a.count + b.count};
}
// Whether a prefix of the order has as many tokens, or as much weight, as is asked for.
__device__ __forceinline__ bool reaches(const Mass& prefix, const Mass& need) {
  return prefix.count >= need.count || prefix.sum >= need.sum;
}
constexpr unsigned kAnyCount = ~0u;
constexpr Sum kAnySum = ~Sum{0};

struct PickShared {
  Sum sums[kBins];
  Place places[kListed];
  Sum weights[kListed];
  Sum warp_sums[kPickWarps];
  Sum found_sum;
  Place found_place;
  unsigned counts[kBins];
  unsigned warp_counts[kPickWarps];
  unsigned found_bin;
  unsigned found_count;
  unsigned listed;
};

struct Row {
  const float* x;
  const Sum* sums;  // of its buckets
  const unsigned* counts;
  unsigned vocab;
  Scale scale;
};

// Tokens of one bucket whose places begin with a prefix.
struct Range {
  unsigned bucket;
  unsigned shift;  // of the prefix; 64: no prefix
  Place prefix;
  float low;  // no logit of the bucket lies outside of these
  float high;
};

__device__ __forceinline__ Range range_of(unsigned bucket, const Scale& scale) {
  const unsigned code = kSampleBuckets - 1 - bucket;
  const double unit = exp2(static_cast<int>(code >> kMantissaBits) -
                           static_cast<double>(kMantissaBits + kSampleWeightBits));
  const double first = (1u << kMantissaBits) + code % (1u << kMantissaBits);
  // Half a part for the rounding of weights, and a little for that of powers and logarithms.
  const double low = log(first * unit - 0.5 / kOne) / scale.inverse;
  const double high = log((first + 1) * unit + 0.5 / kOne) / scale.inverse;
  const double slack = (fabs(scale.largest) + fabs(low)) * 1e-6 + 1e-30;
  return {bucket, 64, 0, static_cast<float>(scale.largest + low - slack),
          static_cast<float>(scale.largest + high + slack)};
}

// f(place, parts) for each of the range's tokens that fall to this thread.
template <class F>
__device__ __forceinline__ void for_each(const Row& row, const Range& range, const F& f) {
  for (unsigned first = 4 * threadIdx.x; first < row.vocab; first += 4 * kPickThreads) {
    const uint4 words = ld16(row.x + first);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      const float x = bits_float(i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w);
      if (!(x >= range.low && x <= range.high) || first + i >= row.vocab) continue;
      const Place place = place_of(x, first + i);
      if (range.shift < 64 && place >> range.shift != range.prefix) continue;
      const Sum parts = row.scale.parts(row.scale.exact(x));
      if (parts != 0 && bucket_of(parts) == range.bucket) f(place, parts);
    }
  }
}

// The mass of all bins; that before this thread's bins goes to `before`.
__device__ __forceinline__ Mass scan_bins(PickShared* shared, Mass* before) {
  Mass own{0, 0};
#pragma unroll
  for (unsigned i = 0; i < kBinsOfThread; i++) {
    const unsigned bin = threadIdx.x * kBinsOfThread + i;
    own = own + Mass{shared->sums[bin], shared->counts[bin]};
  }
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  Mass through = own;
#pragma unroll
  for (int back = 1; back < static_cast<int>(kWarp); back *= 2) {
    const int from = lane >= back ? lane - back : lane;
    const uint32_t upper = shfl_idx(kFullMask, static_cast<uint32_t>(through.sum >> 32), from);
    const uint32_t lower = shfl_idx(kFullMask, static_cast<uint32_t>(through.sum), from);
    const uint32_t count = shfl_idx(kFullMask, through.count, from);
    if (lane >= back) through = through + Mass{Sum{upper} << 32 | lower, count};
  }
  if (lane == static_cast<int>(kWarp) - 1) {
    shared->warp_sums[threadIdx.x / kWarp] = through.sum;
    shared->warp_counts[threadIdx.x / kWarp] = through.count;
  }
  syncthreads();
  Mass all{0, 0};
  Mass warps_before{0, 0};
  for (unsigned w = 0; w < kPickWarps; w++) {
    if (w == threadIdx.x / kWarp) warps_before = all;
    all = all + Mass{shared->warp_sums[w], shared->warp_counts[w]};
  }
  *before = {warps_before.sum + through.sum - own.sum,
             warps_before.count + through.count - own.count};
  return all;
}

// The first bin at whose end `need` is reached, on top of `before`, which becomes what lies before
// that bin. The bins were written before a barrier; another one stands at the end.
__device__ __forceinline__ unsigned find_bin(PickShared* shared, const Mass& need, Mass* before) {
  Mass prefix;
  scan_bins(shared, &prefix);
  prefix = prefix + *before;
#pragma unroll
  for (unsigned i = 0; i < kBinsOfThread; i++) {
    const unsigned bin = threadIdx.x * kBinsOfThread + i;
    const Mass next = prefix + Mass{shared->sums[bin], shared->counts[bin]};
    if (reaches(next, need) && !reaches(prefix, need)) {
      shared->found_bin = bin;
      shared->found_sum = prefix.sum;
      shared->found_count = prefix.count;
    }
    prefix = next;
  }
  syncthreads();
  const unsigned bin = shared->found_bin;
  *before = {shared->found_sum, shared->found_count};
  return bin;
}

__device__ __forceinline__ void load_buckets(const Row& row, PickShared* shared) {
  syncthreads();
  for (unsigned b = threadIdx.x; b < kBins; b += kPickThreads) {
    shared->sums[b] = b < kSampleBuckets ? row.sums[b] : 0;
    shared->counts[b] = b < kSampleBuckets ? row.counts[b] : 0;
  }
  syncthreads();
}

// Narrows the range by one digit: to that in which `need` is reached.
__device__ __forceinline__ void narrow(const Row& row, const Mass& need, PickShared* shared,
                                       Range* range, Mass* before) {
  const unsigned shift = range->shift > kDigitBits ? range->shift - kDigitBits : 0;
  const unsigned digits = 1u << (range->shift - shift);
  syncthreads();
  for (unsigned b = threadIdx.x; b < kBins; b += kPickThreads) {
    shared->sums[b] = 0;
    shared->counts[b] = 0;
  }
  syncthreads();
  for_each(row, *range, [&](Place place, Sum parts) {
    const unsigned digit = static_cast<unsigned>(place >> shift) & (digits - 1);
    atomic_add(&shared->sums[digit], parts);
    atomic_add(&shared->counts[digit], 1u);
  });
  syncthreads();
  const unsigned digit = find_bin(shared, need, before);
  range->prefix = range->shift == 64 ? digit : range->prefix * digits + digit;
  range->shift = shift;
}

// The first token at which `need` is reached, which must be within the row; `through` becomes the
// mass up to its end. The same in each thread.
__device__ __forceinline__ Place find_token(const Row& row, const Mass& need, PickShared* shared,
                                            Mass* through) {
  load_buckets(row, shared);
  Mass before{0, 0};
  unsigned bin = find_bin(shared, need, &before);
  Range range = range_of(bin, row.scale);
  for (;;) {
    if (shared->counts[bin] <= kListed) break;
    narrow(row, need, shared, &range, &before);
    bin = static_cast<unsigned>(range.prefix) & (kBins - 1);
    if (range.shift == 0) break;
  }
  if (threadIdx.x == 0) shared->listed = 0;
  syncthreads();
  for_each(row, range, [&](Place place, Sum parts) {
    const unsigned at = atomic_add(&shared->listed, 1u);
    if (at >= kListed) return;
    shared->places[at] = place;
    shared->weights[at] = parts;
  });
  syncthreads();
  if (threadIdx.x < shared->listed) {
    const Place own = shared->places[threadIdx.x];
    Mass prefix = before;
    for (unsigned i = 0; i < shared->listed; i++) {
      if (shared->places[i] < own) prefix = prefix + Mass{shared->weights[i], 1};
    }
    const Mass end = prefix + Mass{shared->weights[threadIdx.x], 1};
    if (reaches(end, need) && !reaches(prefix, need)) {
      shared->found_place = own;
      shared->found_sum = end.sum;
      shared->found_count = end.count;
    }
  }
  syncthreads();
  *through = {shared->found_sum, shared->found_count};
  return shared->found_place;
}

// floor(uniform * sum), where the uniform is the upper 53 bits of Philox4x32-10 by `seed` at
// `index` (kernels/philox.h), below 1.
__device__ __forceinline__ Sum target_of(uint64_t seed, uint32_t index, Sum sum) {
  uint32_t c[4] = {index, 0, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const Sum p0 = Sum{0xd2511f53} * c[0];
    const Sum p1 = Sum{0xcd9e8d57} * c[2];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0];
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1];
    c[3] = static_cast<uint32_t>(p0);
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  // A product of 53 by 63 bits, of 32-bit halves; its upper part is wanted.
  const Sum u = (Sum{c[0]} << 32 | c[1]) >> 11;
  const Sum low = (u & 0xffffffffu) * (sum & 0xffffffffu);
  const Sum middle = (u >> 32) * (sum & 0xffffffffu) + (low >> 32);
  const Sum other = (u & 0xffffffffu) * (sum >> 32) + (middle & 0xffffffffu);
  const Sum upper = (u >> 32) * (sum >> 32) + (middle >> 32) + (other >> 32);
  const Sum lower = other << 32 | (low & 0xffffffffu);
  return upper << 11 | lower >> 53;
}

// What each cut keeps is a prefix of the order, and so is what they keep together: its mass.
__device__ __forceinline__ int32_t pick(const Row& row, const SampleRow& params,
                                        const Mass& not_below_least, PickShared* shared) {
  load_buckets(row, shared);
  Mass before;
  Mass kept = scan_bins(shared, &before);
  const auto top_k = static_cast<unsigned>(params.top_k);
  enum Step { kTopK, kTopP, kToken, kSteps };
  Place place = 0;
#pragma unroll 1
  for (int step = 0; step < kSteps; step++) {
    Mass need{kAnySum, kAnyCount};
    if (step == kTopK) {
      if (params.top_k <= 0 || top_k >= kept.count) continue;
      need.count = top_k;
    } else if (step == kTopP) {
      if (!(params.top_p < 1)) continue;
      const double enough = ceil(double{params.top_p} * static_cast<double>(kept.sum));
      need.sum = enough >= 1 ? static_cast<Sum>(enough) : 1;
    } else {
      // Min-p; at least one token is kept.
      if (params.min_p > 0 && not_below_least.count < kept.count) {
        kept = not_below_least.count > 0 ? not_below_least : Mass{static_cast<Sum>(kOne), 1};
      }
      need.sum = target_of(params.seed, params.index, kept.sum) + 1;
    }
    place = find_token(row, need, shared, &kept);
  }
  return static_cast<int32_t>(place & 0xffffffffu);
}

__global__ void __launch_bounds__(kPickThreads)
    sample_pick_kernel(const float* logits, const SampleRow* params, unsigned vocab, size_t stride,
                       unsigned slices, SampleMemory memory, int32_t* ids) {
  HEADRACE_SHARED(PickShared, shared);
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t at = blockIdx.x;
  const Place best = best_of_row(memory, at, slices);
  const SampleRow row_params = params[at];
  int32_t id = -1;
  if (usable(best)) id = static_cast<int32_t>(best & 0xffffffffu);
  if (id >= 0 && !is_greedy(row_params)) {
    const Row row{logits + at * stride, memory.sums + at * kSampleBuckets,
                  memory.counts + at * kSampleBuckets, vocab,
                  Scale{logit_of(best), 1.0 / row_params.temperature}};
    id = pick(row, row_params, {memory.kept_sums[at], memory.kept_counts[at]}, shared);
  }
  if (threadIdx.x == 0) ids[at] = id;
}

}  // namespace

size_t workspace_bytes(const kernels::Sample& op) {
  return sample_memory_bytes(static_cast<size_t>(op.rows), slices_of(op.vocab));
}

cudaError_t enqueue(const kernels::Sample& op, const Context& context) {
  if (!logits_fit(op.logits, op.rows, op.vocab, op.stride, kLogitsVocabMax)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.vocab == 0) return cudaSuccess;
  if (context.workspace_bytes < workspace_bytes(op)) return cudaErrorInvalidValue;
  const unsigned slices = slices_of(op.vocab);
  const auto rows = static_cast<unsigned>(op.rows);
  const auto vocab = static_cast<unsigned>(op.vocab);
  const auto stride = static_cast<size_t>(op.stride);
  const SampleMemory memory = sample_memory(context.workspace, rows, slices);
  cudaError_t error = launch_dependent("sample_scan", context.stream, dim3(rows * slices),
                                       dim3(kSliceThreads), sizeof(ScanShared), sample_scan_kernel,
                                       op.logits, vocab, stride, slices, memory);
  if (error != cudaSuccess) return error;
  error = launch_dependent("sample_weigh", context.stream, dim3(rows * slices), dim3(kSliceThreads),
                           sizeof(WeighShared), sample_weigh_kernel, op.logits, op.params, vocab,
                           stride, slices, memory);
  if (error != cudaSuccess) return error;
  return launch_dependent("sample_pick", context.stream, dim3(rows), dim3(kPickThreads),
                          sizeof(PickShared), sample_pick_kernel, op.logits, op.params, vocab,
                          stride, slices, memory, op.ids);
}

}  // namespace headrace::cuda

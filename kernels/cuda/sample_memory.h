#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/logit_order.h"
#include "kernels/cuda/logits.h"

namespace headrace::cuda {

// Weights in (0, 1] by their size: leading bit and five more.
constexpr unsigned kSampleBuckets = kSampleWeightBits * 32 + 1;
// A slice's best where one of its logits is NaN: before all others, and no number has it.
constexpr Place kNaNPlace = 0;

// The workspace of Sample.
struct SampleMemory {
  unsigned long long* sums;       // [rows, kSampleBuckets]: of weights, in whole parts
  unsigned long long* kept_sums;  // [rows]: of weights that min-p keeps
  Place* best;                    // [rows, slices]
  unsigned* counts;               // [rows, kSampleBuckets]
  unsigned* kept_counts;          // [rows]
};

inline size_t sample_memory_bytes(size_t rows, size_t slices) {
  return rows * (8 * (kSampleBuckets + 1 + slices) + 4 * (kSampleBuckets + 1));
}
inline SampleMemory sample_memory(void* base, size_t rows, size_t slices) {
  SampleMemory m;
  m.sums = static_cast<unsigned long long*>(base);
  m.kept_sums = m.sums + rows * kSampleBuckets;
  m.best = m.kept_sums + rows;
  m.counts = reinterpret_cast<unsigned*>(m.best + rows * slices);
  m.kept_counts = m.counts + rows * kSampleBuckets;
  return m;
}

}  // namespace headrace::cuda

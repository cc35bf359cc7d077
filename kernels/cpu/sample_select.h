#pragma once

#include "kernels/ops.h"

namespace headrace::kernels {

// Temperatures below this are greedy: the logits of a model in f32 do not tell finer differences,
// and (logit - largest) / temperature must stay a number.
constexpr float kGreedyTemperature = 1e-6f;
static inline bool greedy(const SampleRow& row) { return !(row.temperature >= kGreedyTemperature); }

// Weights in (0, 1] are sorted by their bits' upper part first: 8 exponent and 5 mantissa bits.
constexpr int32_t kWeightBuckets = (0x3f800000 >> 18) + 1;

// Memory of one row under way.
struct SampleMemory {
  float* weights;    // [vocab]: exp((logit - largest) / temperature)
  uint32_t* ids;     // [vocab]
  uint32_t* starts;  // [kWeightBuckets + 1]
};
size_t sample_memory_bytes(int32_t vocab);
SampleMemory sample_memory(std::byte* scratch, int32_t vocab);

// The token that top-k, top-p, min-p and the row's uniform choose. Plain code, shared by all paths.
int32_t select_token(const SampleMemory& memory, int32_t vocab, const SampleRow& row);

}  // namespace headrace::kernels

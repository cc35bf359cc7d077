#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cpu/sample_select.h"  // what is greedy
#include "kernels/cuda/context.h"
#include "kernels/ops.h"

// Operations on rows of logits (structs, costs and references: kernels/ops.h). All pointers are of
// the device, the parameters of rows too. Logits are 16-byte aligned, `stride` is a multiple of 4,
// the vocabulary has at most kLogitsVocabMax tokens. What lies between it and the stride may be
// anything. A row's result depends on that row alone, and no bit of it on the grid: sums follow an
// order of the vocabulary alone, or are of integers.

namespace headrace::cuda {

constexpr int32_t kLogitsVocabMax = 1 << 19;

// In double, rounded once, as the reference does it.
cudaError_t enqueue(const kernels::AdjustLogits& op, const Context& context);

// Exponentials and sums in double. `top` is at most kLogProbsTopMax. Wants workspace.
constexpr int32_t kLogProbsTopMax = 32;
size_t workspace_bytes(const kernels::LogProbs& op);
cudaError_t enqueue(const kernels::LogProbs& op, const Context& context);

// Tokens stand in the order of falling logits, equal ones by id; a weight e^((x - largest) / T) is
// computed in double and counted in whole parts of 2^-kSampleWeightBits, so that sums are of
// integers and exact. Against the reference each border between two tokens, and each border of
// top-p, moves by less than vocab * 2^-(kSampleWeightBits + 1) of the largest token's weight; and
// tokens that are less than half a part are never chosen. Wants workspace.
constexpr int kSampleWeightBits = 44;
size_t workspace_bytes(const kernels::Sample& op);
cudaError_t enqueue(const kernels::Sample& op, const Context& context);

}  // namespace headrace::cuda

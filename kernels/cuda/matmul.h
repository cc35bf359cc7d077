#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/context.h"
#include "kernels/ops.h"

// Products with weights (structs, costs and references: kernels/ops.h). Weights in
// Tiling::kFragments, of any type; x as bf16, with sums for kW4Min; every address 16-byte aligned
// but y of MatMul, which is of any float. Any number of rows, N and K >= 1.
//
// A result's bits depend on its row of x, on the weights and on K alone: K is cut into pieces of
// piece_units(K) times 64; a piece is summed in K order, f32, groups of 32 of a quantized type by
// themselves before their scale; then the pieces in order. Integer weights are exact in bf16, f16
// ones are two bf16, f32 ones three.

namespace headrace::cuda {

// Up to so many rows the weights are streamed to all of them; more are taken 64 at a time, by
// blocks that run side by side and read the same weights.
constexpr int32_t kStreamRowsMax = 32;

// Bytes that go through the workspace, on top of the operation's cost, if pieces of K are spread
// over blocks: with more rows than that, and a context that has memory for it (matmul_spread.h).
uint64_t spread_bytes(const kernels::MatMul& op, int processors);
uint64_t spread_bytes(const kernels::MatMulSwiGlu& op, int processors);
// Whether some number of rows, up to 256, makes any of it.
bool may_spread(const kernels::Matrix& w, int processors);

// y = w x or y += w x; w is not paired, and what lies between rows of y stays as it is.
cudaError_t enqueue(const kernels::MatMul& op, const Context& context);

// w is paired. y: f32, or bf16 with sums, or all of them.
cudaError_t enqueue(const kernels::MatMulSwiGlu& op, const Context& context);

}  // namespace headrace::cuda

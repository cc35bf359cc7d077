#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cost.h"

// The GPU's operations as host code sees them: plain structs of device pointers, what they cost,
// and how to put them on a stream. `enqueue` returns what the launch returns, and
// cudaErrorInvalidValue for a shape or an address the kernel does not do (each states them);
// nothing is launched then. An operation without elements is done at once. bf16 is a uint16_t, the
// upper half of an f32.

namespace headrace::cuda {

// to[0, bytes) = from[0, bytes). Both 16-byte aligned, not overlapping; any number of bytes.
struct CopyBytes {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// A 4-bit weight matrix, rows x columns, in groups of 32 columns as GGUF's Q4_0 has them: weight =
// scale (quant - 8), quant 0 to 15, scale f16. Two planes: quants, row after row, columns / 2 bytes
// each; scales, row after row, columns / 32 f16 each: 4.5 bits a weight. Eight quants are a 32-bit
// word, element e at bits kW4Shift[e]: the even ones in the lower half, the odd ones above, so that
// a shift and a mask yield two neighbours in the halves of a register.
struct W4Matrix {
  const uint32_t* quants = nullptr;  // 16-byte aligned
  const uint16_t* scales = nullptr;
  uint32_t rows = 0;
  uint32_t columns = 0;  // a multiple of kW4Group
};
constexpr uint32_t kW4Group = 32;
constexpr uint32_t kW4Shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

// y = w x for one vector: y f32 (rows), x bf16 (columns), 16-byte aligned. Sums in f32: within a
// group, then over groups. Columns: up to kW4GemvColumnsMax. May begin before the launch in front
// has ended: only weights are read before that.
struct W4Gemv {
  float* y = nullptr;
  W4Matrix w;
  const uint16_t* x = nullptr;
};
constexpr uint32_t kW4GemvColumnsMax = 32768;

cudaError_t enqueue(const CopyBytes& op, cudaStream_t stream);
cudaError_t enqueue(const W4Gemv& op, cudaStream_t stream);

inline kernels::Cost cost(const CopyBytes& op) {
  return {.activation_bytes = 2 * static_cast<uint64_t>(op.bytes)};
}
inline kernels::Cost cost(const W4Gemv& op) {
  const uint64_t weights = static_cast<uint64_t>(op.w.rows) * op.w.columns;
  return {.weight_bytes = weights / 2 + weights / kW4Group * 2,
          .activation_bytes = 2 * static_cast<uint64_t>(op.w.columns) + 4 * uint64_t{op.w.rows},
          .flops = 2 * weights};
}

}  // namespace headrace::cuda

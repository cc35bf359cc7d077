#pragma once

#include <cuda_runtime_api.h>

// Kernels with good and with bad accesses, for the log's own test.

namespace headrace::cuda {

// to = from transposed, 32 x 32, through shared memory: rows of 33 floats, or of 32, where a column
// lies in a single bank.
cudaError_t enqueue_transpose(float* to, const float* from, bool padded, cudaStream_t stream);

// to[i] = from[i stride] for 32 i.
cudaError_t enqueue_strided(float* to, const float* from, unsigned stride, cudaStream_t stream);

// Causal attention of one head in three steps, with all scores in memory: q, k, v and y [rows,
// dims], scores [rows, rows]. One thread has a row.
cudaError_t enqueue_unfused_attention(float* y, float* scores, const float* q, const float* k,
                                      const float* v, unsigned rows, unsigned dims,
                                      cudaStream_t stream);

}  // namespace headrace::cuda

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// What is used of cuBLASLt, as its documentation states it: the library is opened at run time, so
// that building needs nothing of it. The names in comments are its own.

namespace headrace::cuda::cublaslt {

using Status = int;             // cublasStatus_t
using Handle = void*;           // cublasLtHandle_t
using Operation = void*;        // cublasLtMatmulDesc_t
using Layout = void*;           // cublasLtMatrixLayout_t, column after column
using Preference = void*;       // cublasLtMatmulPreference_t
constexpr Status kDone = 0;     // CUBLAS_STATUS_SUCCESS
constexpr int kF32 = 0;         // CUDA_R_32F
constexpr int kBf16 = 14;       // CUDA_R_16BF
constexpr int kSumsF32 = 68;    // CUBLAS_COMPUTE_32F
constexpr int kTransposed = 1;  // CUBLAS_OP_T
constexpr int kOperationA = 3;  // CUBLASLT_MATMUL_DESC_TRANSA
// CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, .._MIN_ALIGNMENT_A_BYTES to D
constexpr int kWorkspaceMax = 1;
constexpr int kAlignments[] = {5, 6, 7, 8};

struct Algorithm {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

struct Functions {
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  const char* (*status_name)(Status);
  size_t (*version)();
  Status (*operation_create)(Operation*, int sums, int scale);
  Status (*operation_set)(Operation, int attribute, const void* value, size_t bytes);
  Status (*operation_destroy)(Operation);
  Status (*layout_create)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t pitch);
  Status (*layout_destroy)(Layout);
  Status (*preference_create)(Preference*);
  Status (*preference_set)(Preference, int attribute, const void* value, size_t bytes);
  Status (*preference_destroy)(Preference);
  Status (*heuristic)(Handle, Operation, Layout a, Layout b, Layout c, Layout d, Preference,
                      int wanted, Heuristic* found, int* count);
  Status (*multiply)(Handle, Operation, const void* alpha, const void* a, Layout, const void* b,
                     Layout, const void* beta, const void* c, Layout, void* d, Layout,
                     const Algorithm*, void* workspace, size_t bytes, cudaStream_t);
};

}  // namespace headrace::cuda::cublaslt

#include "kernels/cuda/gemm_library.h"

#include <cmath>
#include <vector>

#include "kernels/device.h"
#include "kernels/half.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/engine/cublaslt_case.h"
#include "tests/simt/rows_case.h"

// What this binding believes of the library is held to the library's own header where it is.
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
namespace headrace::cuda::cublaslt {
static_assert(kDone == CUBLAS_STATUS_SUCCESS && kF32 == CUDA_R_32F && kBf16 == CUDA_R_16BF);
static_assert(kSumsF32 == CUBLAS_COMPUTE_32F && kTransposed == CUBLAS_OP_T);
static_assert(kOperationA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kWorkspaceMax == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kAlignments[0] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kAlignments[3] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Heuristic, workspace) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
}  // namespace headrace::cuda::cublaslt
#endif

namespace headrace::cuda {
namespace {

using simt::DeviceBuffer;
using simt::StandIn;

std::vector<uint16_t> bf16s(size_t count, uint32_t seed) {
  std::vector<uint16_t> out;
  for (const float f : simt::random_floats(count, seed)) out.push_back(kernels::float_to_bf16(f));
  return out;
}

struct Run {
  explicit Run(const Gemm& gemm)
      : shape(gemm),
        host_w(bf16s(static_cast<size_t>(gemm.n) * static_cast<size_t>(gemm.k), 1)),
        host_x(bf16s(static_cast<size_t>(gemm.m) * static_cast<size_t>(gemm.k), 2)),
        w(host_w),
        x(host_x),
        y(std::vector<float>(static_cast<size_t>(gemm.m * gemm.stride), 0.5f)),
        work(std::vector<uint8_t>(8192)) {}

  void multiply(GemmLibrary& library) const {
    const simt::TestStream stream;
    library.multiply(shape, w.get(), x.get(), y.get(),
                     {.stream = stream.get(), .workspace = work.get(), .workspace_bytes = 8192});
    stream.wait();
  }
  // What y [r, n] should be, with 0.5 before.
  double truth(int32_t r, int32_t n) const {
    double sum = shape.add ? 0.5 : 0;
    for (int32_t k = 0; k < shape.k; k++)
      sum += double{kernels::bf16_to_float(host_w[static_cast<size_t>(n * shape.k + k)])} *
             kernels::bf16_to_float(host_x[static_cast<size_t>(r * shape.k + k)]);
    return sum;
  }

  Gemm shape;
  std::vector<uint16_t> host_w;
  std::vector<uint16_t> host_x;
  DeviceBuffer<uint16_t> w;
  DeviceBuffer<uint16_t> x;
  DeviceBuffer<float> y;
  DeviceBuffer<uint8_t> work;
};

TEST_CASE("products are what they should be, and gaps between rows stay") {
  const StandIn standin;
  GemmLibrary library(0);
  CHECK(library.version() == 130100);
  for (const bool add : {false, true}) {
    const Run run({.m = 5, .n = 7, .k = 64, .stride = 9, .add = add});
    run.multiply(library);
    const std::vector<float> y = run.y.values();
    for (int32_t r = 0; r < 5; r++) {
      for (int32_t n = 0; n < 9; n++) {
        const double right = n < 7 ? run.truth(r, n) : 0.5;
        const double got = y[static_cast<size_t>(r * 9 + n)];
        CHECK(std::fabs(got - right) <= 1e-6 * std::fabs(right));
      }
    }
  }
}

TEST_CASE("an algorithm is asked for once a shape, and nothing is left behind") {
  const StandIn standin;
  const int alive = StandIn::count("standin_alive");
  {
    GemmLibrary library(0);
    const int before = StandIn::count("standin_asked");
    for (const int32_t m : {3, 4, 3, 4, 3})
      Run({.m = m, .n = 8, .k = 64, .stride = 8, .add = false}).multiply(library);
    CHECK(StandIn::count("standin_asked") == before + 2);
    // Those of more shapes than are kept are asked again.
    for (int32_t m = 1; m <= 260; m++)
      Run({.m = m, .n = 1, .k = 1, .stride = 1, .add = false}).multiply(library);
    CHECK(StandIn::count("standin_asked") == before + 262);
    CHECK(StandIn::count("standin_alive") < alive + 4 * 256);
  }
  CHECK(StandIn::count("standin_alive") == alive);
}

TEST_CASE("what the library fails at is the device's error, with the status' name") {
  const StandIn standin;
  const int alive = StandIn::count("standin_alive");
  {
    GemmLibrary library(0);
    const Run run({.m = 3, .n = 8, .k = 64, .stride = 8, .add = false});
    const auto throws = [&](const char* what, const char* words) {
      standin.fail(what);
      CHECK_THROWS_WITH_AS(run.multiply(library), words, kernels::DeviceError);
      standin.mend();
    };
    throws("heuristic",
           "cuda:0: cuBLASLt: the choice of an algorithm: CUBLAS_STATUS_NOT_SUPPORTED");
    throws("nothing_found", "cuda:0: cuBLASLt: it has no algorithm for a product");
    throws("too_much", "cuda:0: cuBLASLt: an algorithm wants more memory than it is given");
    throws("multiply", "cuda:0: cuBLASLt: a product: CUBLAS_STATUS_EXECUTION_FAILED");
    run.multiply(library);
  }
  standin.fail("create");
  CHECK_THROWS_WITH_AS(GemmLibrary(1), "cuda:1: cuBLASLt: its start: CUBLAS_STATUS_NOT_INITIALIZED",
                       kernels::DeviceError);
  CHECK(StandIn::count("standin_alive") == alive);
}

TEST_CASE("a library that is missing, or lacks a function, is named") {
  const StandIn lacks(HEADRACE_STANDIN_LACKING);
  CHECK_THROWS_WITH_AS(GemmLibrary(0), doctest::Contains("has no cublasLtMatmul"),
                       kernels::DeviceError);
  const StandIn missing("/nowhere/libcublasLt.so.13");
  CHECK_THROWS_WITH_AS(GemmLibrary(0), doctest::Contains("/nowhere/libcublasLt.so.13"),
                       kernels::DeviceError);
}

}  // namespace
}  // namespace headrace::cuda

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "kernels/cuda/context.h"
#include "kernels/cuda/cublaslt.h"

namespace headrace::cuda {

// y[m, n] = x[m, k] w[n, k]^T, or added to it: rows of y `stride` floats apart, the others without
// gaps. bf16 in, f32 sums and result.
struct Gemm {
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  int64_t stride = 0;
  bool add = false;
};

// cuBLASLt as products of many rows use it, opened at run time. Its sums are formed in an order of
// its own, another one for each shape. Used by one thread; ended with its device still there.
class GemmLibrary {
 public:
  // What is opened: $HEADRACE_CUBLASLT if it is set, else the first of kFiles that is there. Throws
  // DeviceError, which names what is missing of it.
  explicit GemmLibrary(int ordinal);
  ~GemmLibrary();
  GemmLibrary(const GemmLibrary&) = delete;
  GemmLibrary& operator=(const GemmLibrary&) = delete;

  static constexpr const char* kFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  size_t version() const { return functions_.version(); }  // 130100

  // Put on the context's stream; w and x are 16-byte aligned, y is of any float; the workspace is
  // what the library may use. How a shape is best computed is asked once. Throws DeviceError with
  // the name of the library's status.
  void multiply(const Gemm& shape, const uint16_t* w, const uint16_t* x, float* y,
                const Context& context);

 private:
  using Key = std::tuple<int32_t, int32_t, int32_t, int64_t, uint32_t, size_t>;
  struct Plan {
    cublaslt::Operation operation = nullptr;
    cublaslt::Layout w = nullptr;
    cublaslt::Layout x = nullptr;
    cublaslt::Layout y = nullptr;
    cublaslt::Heuristic how{};
  };

  void check(cublaslt::Status status, const char* what) const;
  // `alignment`: of y, up to kAlignment.
  const Plan& plan(const Gemm& shape, uint32_t alignment, size_t workspace);
  void describe(Plan& plan, const Gemm& shape) const;
  void choose(Plan& plan, uint32_t alignment, size_t workspace) const;
  cublaslt::Status ask(Plan& plan, cublaslt::Preference wish, uint32_t alignment, size_t workspace,
                       int& count) const;
  void forget(const Plan& plan) const;

  const int ordinal_;
  cublaslt::Functions functions_{};
  cublaslt::Handle handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace headrace::cuda

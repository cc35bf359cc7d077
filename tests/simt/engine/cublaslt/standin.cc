// A stand-in of libcublasLt: what GemmLibrary uses of it, computed on the host in double. It holds
// its caller to what it was told. HEADRACE_CUBLASLT_FAILS names what fails: create, heuristic,
// nothing_found, too_much, multiply. HEADRACE_STANDIN_LACKS: built without a function.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt.h"
#include "kernels/half.h"

namespace {

using namespace headrace::cuda::cublaslt;

constexpr Status kInvalid = 7;        // CUBLAS_STATUS_INVALID_VALUE
constexpr Status kFailed = 13;        // CUBLAS_STATUS_EXECUTION_FAILED
constexpr Status kNotSupported = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
constexpr uint64_t kMark = 0x5eed;
constexpr size_t kWork = 4096;

struct Matrix {
  int type;
  uint64_t rows;
  uint64_t columns;
  int64_t pitch;
};
struct Wish {
  size_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Product {
  int sums;
  int scale;
  int transposed_a = 0;
};

bool fails(const char* what) {
  const char* const told = std::getenv("HEADRACE_CUBLASLT_FAILS");
  return told != nullptr && std::string(told) == what;
}

bool fits(const Product& p, const Matrix& a, const Matrix& b, const Matrix& c) {
  return p.transposed_a == 1 && p.sums == kSumsF32 && p.scale == kF32 && a.type == kBf16 &&
         b.type == kBf16 && c.type == kF32 && a.rows == b.rows && a.columns == c.rows &&
         b.columns == c.columns && a.pitch >= static_cast<int64_t>(a.rows) &&
         b.pitch >= static_cast<int64_t>(b.rows) && c.pitch >= static_cast<int64_t>(c.rows);
}

// Column after column, without what lies between them.
template <class T>
std::vector<T> taken(const void* from, const Matrix& m, cudaStream_t stream) {
  std::vector<T> out(m.rows * m.columns);
  for (uint64_t i = 0; i < m.columns; i++)
    if (cudaMemcpyAsync(out.data() + i * m.rows,
                        static_cast<const T*>(from) + static_cast<int64_t>(i) * m.pitch,
                        m.rows * sizeof(T), cudaMemcpyDeviceToHost, stream) != cudaSuccess)
      std::abort();
  if (cudaStreamSynchronize(stream) != cudaSuccess) return {};
  return out;
}

template <class T>
const T& of(const void* opaque) {
  return *static_cast<const T*>(opaque);
}

}  // namespace

extern "C" {

int standin_asked = 0;  // heuristics
int standin_alive = 0;  // what was created and not destroyed

Status cublasLtCreate(Handle* out) {
  if (fails("create")) return 1;  // CUBLAS_STATUS_NOT_INITIALIZED
  *out = new int(0);
  standin_alive++;
  return kDone;
}
Status cublasLtDestroy(Handle handle) {
  delete static_cast<int*>(handle);
  standin_alive--;
  return kDone;
}
const char* cublasLtGetStatusName(Status status) {
  return status == kFailed         ? "CUBLAS_STATUS_EXECUTION_FAILED"
         : status == kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == 1             ? "CUBLAS_STATUS_NOT_INITIALIZED"
                                   : "CUBLAS_STATUS_INVALID_VALUE";
}
size_t cublasLtGetVersion() { return 130100; }
Status cublasLtMatmulDescCreate(Operation* out, int sums, int scale) {
  *out = new Product{sums, scale};
  standin_alive++;
  return kDone;
}
Status cublasLtMatmulDescSetAttribute(Operation p, int attribute, const void* value, size_t bytes) {
  if (attribute != kOperationA || bytes != sizeof(int32_t)) return kInvalid;
  static_cast<Product*>(p)->transposed_a = of<int32_t>(value);
  return kDone;
}
Status cublasLtMatmulDescDestroy(Operation p) {
  delete static_cast<Product*>(p);
  standin_alive--;
  return kDone;
}
Status cublasLtMatrixLayoutCreate(Layout* out, int type, uint64_t rows, uint64_t columns,
                                  int64_t pitch) {
  *out = new Matrix{type, rows, columns, pitch};
  standin_alive++;
  return kDone;
}
Status cublasLtMatrixLayoutDestroy(Layout m) {
  delete static_cast<Matrix*>(m);
  standin_alive--;
  return kDone;
}
Status cublasLtMatmulPreferenceCreate(Preference* out) {
  *out = new Wish;
  standin_alive++;
  return kDone;
}
Status cublasLtMatmulPreferenceSetAttribute(Preference p, int attribute, const void* value,
                                            size_t bytes) {
  auto& wish = *static_cast<Wish*>(p);
  if (attribute == kWorkspaceMax && bytes == sizeof(size_t)) {
    wish.workspace = of<size_t>(value);
    return kDone;
  }
  if (attribute < kAlignments[0] || attribute > kAlignments[3] || bytes != sizeof(uint32_t))
    return kInvalid;
  wish.alignments[attribute - kAlignments[0]] = of<uint32_t>(value);
  return kDone;
}
Status cublasLtMatmulPreferenceDestroy(Preference p) {
  delete static_cast<Wish*>(p);
  standin_alive--;
  return kDone;
}
Status cublasLtMatmulAlgoGetHeuristic(Handle, Operation p, Layout a, Layout b, Layout c, Layout d,
                                      Preference wish, int wanted, Heuristic* found, int* count) {
  standin_asked++;
  *count = 0;
  if (fails("heuristic")) return kNotSupported;
  if (wanted != 1 || c != d || !fits(of<Product>(p), of<Matrix>(a), of<Matrix>(b), of<Matrix>(c)))
    return kInvalid;
  if (fails("nothing_found") || of<Wish>(wish).workspace < kWork) return kDone;
  *count = 1;
  *found = {};
  // The alignment travels with the algorithm, as if it had been chosen by it.
  found->algorithm.data[0] = kMark;
  for (int i = 0; i < 4; i++) found->algorithm.data[1 + i] = of<Wish>(wish).alignments[i];
  found->workspace = fails("too_much") ? of<Wish>(wish).workspace + 1 : kWork;
  return kDone;
}
#ifndef HEADRACE_STANDIN_LACKS
Status cublasLtMatmul(Handle, Operation p, const void* alpha, const void* a, Layout a_layout,
                      const void* b, Layout b_layout, const void* beta, const void* c,
                      Layout c_layout, void* d, Layout d_layout, const Algorithm* how,
                      void* workspace, size_t bytes, cudaStream_t stream) {
  if (fails("multiply")) return kFailed;
  const auto& [type, n, m, pitch] = of<Matrix>(d_layout);
  const void* const places[] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    if (reinterpret_cast<uintptr_t>(places[i]) % how->data[1 + i] != 0) return kInvalid;
  if (how->data[0] != kMark || bytes != kWork || workspace == nullptr || c != d ||
      c_layout != d_layout || of<float>(alpha) != 1 ||
      !fits(of<Product>(p), of<Matrix>(a_layout), of<Matrix>(b_layout), of<Matrix>(d_layout)))
    return kInvalid;
  const auto w = taken<uint16_t>(a, of<Matrix>(a_layout), stream);
  const auto x = taken<uint16_t>(b, of<Matrix>(b_layout), stream);
  auto y = taken<float>(c, of<Matrix>(c_layout), stream);
  if (w.empty() || x.empty() || y.empty()) return kFailed;
  const uint64_t k = of<Matrix>(a_layout).rows;
  for (uint64_t column = 0; column < m; column++) {
    for (uint64_t row = 0; row < n; row++) {
      double sum = of<float>(beta) == 0 ? 0 : of<float>(beta) * y[column * n + row];
      for (uint64_t i = 0; i < k; i++)
        sum += double{headrace::kernels::bf16_to_float(w[row * k + i])} *
               headrace::kernels::bf16_to_float(x[column * k + i]);
      y[column * n + row] = static_cast<float>(sum);
    }
    if (cudaMemcpyAsync(static_cast<float*>(d) + static_cast<int64_t>(column) * pitch,
                        y.data() + column * n, n * sizeof(float), cudaMemcpyHostToDevice,
                        stream) != cudaSuccess)
      return kFailed;
  }
  return cudaStreamSynchronize(stream) == cudaSuccess ? kDone : kFailed;
}
#endif

}  // extern "C"

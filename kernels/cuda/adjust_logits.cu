#include "kernels/cuda/dev.h"
#include "kernels/cuda/logit_order.h"
#include "kernels/cuda/logits.h"

// A block a row, an edit a thread: a few words at places that jump. An id occurs once a row, so
// that edits do not meet.

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    adjust_logits_kernel(float* logits, const kernels::LogitEdit* edits, const int32_t* begins,
                         unsigned vocab, size_t stride) {
  grid_dependency_wait();
  grid_dependency_trigger();
  float* x = logits + blockIdx.x * stride;
  const int32_t end = begins[blockIdx.x + 1];
  for (int32_t i = begins[blockIdx.x] + static_cast<int32_t>(threadIdx.x); i < end;
       i += static_cast<int32_t>(kThreads)) {
    const kernels::LogitEdit& e = edits[i];
    if (static_cast<unsigned>(e.id) >= vocab) continue;
    const double old = x[e.id];
    const double divide = e.divide;
    const double scaled = old > 0 ? old / divide : old * divide;
    x[e.id] = static_cast<float>(scaled + e.add);
  }
}

}  // namespace

cudaError_t enqueue(const kernels::AdjustLogits& op, const Context& context) {
  if (!logits_fit(op.logits, op.rows, op.vocab, op.stride, kLogitsVocabMax)) {
    return cudaErrorInvalidValue;
  }
  if (op.rows == 0 || op.vocab == 0) return cudaSuccess;
  return launch_dependent("adjust_logits", context.stream, dim3(static_cast<unsigned>(op.rows)),
                          dim3(kThreads), 0, adjust_logits_kernel, op.logits, op.edits, op.begins,
                          static_cast<unsigned>(op.vocab), static_cast<size_t>(op.stride));
}

}  // namespace headrace::cuda

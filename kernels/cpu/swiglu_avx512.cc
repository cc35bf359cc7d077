#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_avx512.h"
// After the lanes, which it is written over.
#include "kernels/cpu/swiglu_body.h"

namespace headrace::kernels {

void swiglu_avx512(const SwiGlu& op, ThreadPool& pool) { swiglu_body(op, pool); }

void gate_avx512(const void* op, const TileResults& results) {
  gate_results(*static_cast<const MatMulSwiGlu*>(op), results);
}

}  // namespace headrace::kernels

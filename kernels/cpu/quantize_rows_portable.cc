#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_portable.h"
// After the lanes, which it is written over.
#include "kernels/cpu/quantize_rows_body.h"

namespace headrace::kernels {

void quantize_rows_portable(const QuantizeRows& op, ThreadPool& pool) {
  quantize_rows_body(op, pool);
}

}  // namespace headrace::kernels

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_avx2.h"
// After the lanes, which it is written over.
#include "kernels/cpu/rms_norm_body.h"

namespace headrace::kernels {

void rms_norm_avx2(const RmsNorm& op, ThreadPool& pool) { rms_norm_body(op, pool); }

}  // namespace headrace::kernels

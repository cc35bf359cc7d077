#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_avx2.h"
// After the lanes, which it is written over.
#include "kernels/cpu/log_probs_body.h"

namespace headrace::kernels {

void log_probs_avx2(const LogProbs& op, ThreadPool& pool) { log_probs_body(op, pool); }

}  // namespace headrace::kernels

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_avx2.h"
// After the lanes, which it is written over.
#include "kernels/cpu/sample_body.h"

namespace headrace::kernels {

void sample_avx2(const Sample& op, ThreadPool& pool, std::byte* scratch) {
  sample_body(op, pool, scratch);
}

}  // namespace headrace::kernels

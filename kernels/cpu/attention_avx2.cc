#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_avx2.h"
// After the lanes, which it is written over.
#include "kernels/cpu/attention_body.h"

namespace headrace::kernels {

void attention_avx2(const Attention& op, ThreadPool& pool, std::byte* scratch) {
  attention_body(op, pool, scratch);
}

}  // namespace headrace::kernels

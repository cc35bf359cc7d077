#include "kernels/cpu/bodies.h"
#include "kernels/cpu/lanes_portable.h"
// After the lanes, which it is written over.
#include "kernels/cpu/rope_append_kv_body.h"

namespace headrace::kernels {

void rope_append_kv_portable(const RopeAppendKv& op, ThreadPool& pool) {
  rope_append_kv_body(op, pool);
}

void rotate_portable(const void* op, const TileResults& results) {
  rotate_results(static_cast<const MatMulRope*>(op)->rope, results);
}

}  // namespace headrace::kernels

#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {

// The product's input and weights, RopeAppendKv's output: q goes to memory once, k and v to the
// pool alone.
Cost cost(const MatMulRope& op) {
  const KvLayout& l = op.rope.kv.layout;
  const Cost rope = cost(op.rope);
  const auto rows = static_cast<uint64_t>(op.rope.rows);
  const auto q = static_cast<uint64_t>(op.rope.heads) * static_cast<uint64_t>(l.head_dim);
  Cost c;
  c.weight_bytes = op.w.bytes();
  c.kv_bytes = rope.kv_bytes;
  c.activation_bytes = rows * (product_row_bytes(op.x, op.w) +
                               sizeof(float) * (q + static_cast<uint64_t>(op.rope.rotated)));
  c.flops = cost(product_of(op)).flops + rope.flops;
  return c;
}

void reference(const MatMulRope& op) {
  reference(product_of(op));
  reference(op.rope);
}

}  // namespace headrace::kernels

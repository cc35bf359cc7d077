#include "kernels/kv_element.h"
#include "kernels/ops.h"

namespace headrace::kernels {
namespace {

void rotate(float* head, const float* rope, int32_t rotated) {
  for (int32_t i = 0; i < rotated; i += 2) {
    const double c = rope[i], s = rope[i + 1], a = head[i], b = head[i + 1];
    head[i] = static_cast<float>(a * c - b * s);
    head[i + 1] = static_cast<float>(a * s + b * c);
  }
}

}  // namespace

Cost cost(const RopeAppendKv& op) {
  const KvLayout& l = op.kv.layout;
  const auto rows = static_cast<uint64_t>(op.rows);
  const auto turned = rows * static_cast<uint64_t>(op.heads + l.kv_heads);
  const auto appended = rows * static_cast<uint64_t>(2 * l.kv_heads * l.head_dim);
  Cost c;
  c.kv_bytes = rows * static_cast<uint64_t>(2 * l.kv_heads) * l.row_bytes();
  // q is read and written, k and v are read; k need not go back.
  c.activation_bytes = sizeof(float) * (2 * rows * static_cast<uint64_t>(op.heads * l.head_dim) +
                                        appended + rows * static_cast<uint64_t>(op.rotated));
  c.flops = 3 * turned * static_cast<uint64_t>(op.rotated);
  return c;
}

void reference(const RopeAppendKv& op) {
  const KvLayout& l = op.kv.layout;
  const int64_t width = int64_t{op.heads + 2 * l.kv_heads} * l.head_dim;
  for (int64_t r = 0; r < op.rows; ++r) {
    const StepRow& row = op.step[r];
    if (row.position < 0) continue;
    float* head = op.qkv + r * width;
    const float* rope = op.rope + int64_t{row.position} * op.rotated;
    for (int32_t h = 0; h < op.heads + l.kv_heads; ++h)
      rotate(head + h * l.head_dim, rope, op.rotated);
    const int32_t t = row.position % l.block_tokens;
    const float* k = head + int64_t{op.heads} * l.head_dim;
    const float* v = k + int64_t{l.kv_heads} * l.head_dim;
    for (int32_t h = 0; h < l.kv_heads; ++h) {
      std::byte* to = op.kv.head(row.blocks[row.position / l.block_tokens], op.layer, h);
      put_kv_row(l, to, KvHalf::kKey, t, k + int64_t{h} * l.head_dim);
      put_kv_row(l, to, KvHalf::kValue, t, v + int64_t{h} * l.head_dim);
    }
  }
}

}  // namespace headrace::kernels

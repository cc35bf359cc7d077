#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kv_element.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {
namespace {

// One query against keys 0..position; y[head_dim].
void attend(const Attention& op, const StepRow& row, int32_t kv_head, const float* q, float* y) {
  const KvLayout& l = op.kv.layout;
  const int32_t keys = row.position + 1;
  std::vector<double> weight(static_cast<size_t>(keys));
  const auto page = [&](int32_t key) {
    return op.kv.head(row.blocks[key / l.block_tokens], op.layer, kv_head);
  };
  double largest = -std::numeric_limits<double>::infinity();
  for (int32_t key = 0; key < keys; ++key) {
    double dot = 0;
    for (int32_t d = 0; d < l.head_dim; ++d) {
      dot += double{q[d]} * kv_element(l, page(key), KvHalf::kKey, key % l.block_tokens, d);
    }
    dot /= std::sqrt(double(l.head_dim));
    weight[static_cast<size_t>(key)] = dot;
    largest = dot > largest || dot != dot ? dot : largest;
  }
  double sum = 0;
  for (double& w : weight) sum += w = exp_exact(w - largest);
  std::vector<double> out(static_cast<size_t>(l.head_dim));
  for (int32_t key = 0; key < keys; ++key) {
    for (int32_t d = 0; d < l.head_dim; ++d) {
      out[static_cast<size_t>(d)] +=
          weight[static_cast<size_t>(key)] *
          kv_element(l, page(key), KvHalf::kValue, key % l.block_tokens, d);
    }
  }
  for (int32_t d = 0; d < l.head_dim; ++d) {
    y[d] = static_cast<float>(out[static_cast<size_t>(d)] / sum);
  }
}

}  // namespace

// Rows of one sequence read its keys and values once. A key costs 4 * head_dim operations a head:
// two for the score, two for the value.
Cost cost(const Attention& op) {
  const KvLayout& l = op.kv.layout;
  const auto width = static_cast<uint64_t>(op.heads * l.head_dim);
  const StepRow* step = op.host_step != nullptr ? op.host_step : op.step;
  Cost c;
  for (int32_t r = 0; r < op.rows; ++r) {
    if (step[r].position < 0) continue;
    const auto keys = static_cast<uint64_t>(step[r].position) + 1;
    c.flops += 4 * keys * width;
    const bool last = r + 1 == op.rows || step[r + 1].blocks != step[r].blocks;
    if (last) c.kv_bytes += keys * static_cast<uint64_t>(2 * l.kv_heads) * l.row_bytes();
  }
  c.activation_bytes = static_cast<uint64_t>(op.rows) * width * sizeof(float) +
                       rows_bytes(op.y, op.rows, op.heads * l.head_dim);
  return c;
}

void reference(const Attention& op) {
  const KvLayout& l = op.kv.layout;
  const int64_t in = int64_t{op.heads + 2 * l.kv_heads} * l.head_dim;
  const int64_t out = int64_t{op.heads} * l.head_dim;
  std::vector<float> y(static_cast<size_t>(op.rows * out));
  for (int64_t r = 0; r < op.rows; ++r) {
    for (int32_t h = 0; h < op.heads && op.step[r].position >= 0; ++h) {
      attend(op, op.step[r], h / (op.heads / l.kv_heads), op.qkv + r * in + int64_t{h} * l.head_dim,
             y.data() + r * out + int64_t{h} * l.head_dim);
    }
  }
  deliver_rows(y.data(), op.rows, static_cast<int32_t>(out), op.y);
}

}  // namespace headrace::kernels

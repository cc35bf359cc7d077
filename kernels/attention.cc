#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kv_element.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference_rows.h"

namespace headrace::kernels {
namespace {

// The queries of a KV head, `group` of them, against keys 0..position; y like q, [group, head_dim].
void attend(const Attention& op, const StepRow& row, int32_t kv_head, size_t group, const float* q,
            float* y) {
  const KvLayout& l = op.kv.layout;
  const auto keys = static_cast<size_t>(row.position) + 1, dims = static_cast<size_t>(l.head_dim);
  std::vector<double> queries(q, q + group * dims), out(group * dims), values(dims);
  std::vector<double> weight(group * keys);
  const auto read = [&](size_t key, KvHalf half) {
    const auto at = static_cast<int32_t>(key);
    const std::byte* head = op.kv.head(row.blocks[at / l.block_tokens], op.layer, kv_head);
    get_kv_row(l, head, half, at % l.block_tokens, values.data());
  };
  for (size_t key = 0; key < keys; ++key) {
    read(key, KvHalf::kKey);
    for (size_t g = 0; g < group; ++g) {
      weight[g * keys + key] =
          dot(queries.data() + g * dims, values.data(), dims) / std::sqrt(double(l.head_dim));
    }
  }
  std::vector<double> sum(group);
  for (size_t g = 0; g < group; ++g) {
    double* const w = weight.data() + g * keys;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t key = 0; key < keys; ++key)
      largest = w[key] > largest || w[key] != w[key] ? w[key] : largest;
    for (size_t key = 0; key < keys; ++key) sum[g] += w[key] = exp_exact(w[key] - largest);
  }
  for (size_t key = 0; key < keys; ++key) {
    read(key, KvHalf::kValue);
    for (size_t g = 0; g < group; ++g)
      for (size_t d = 0; d < dims; ++d) out[g * dims + d] += weight[g * keys + key] * values[d];
  }
  for (size_t i = 0; i < out.size(); ++i) y[i] = static_cast<float>(out[i] / sum[i / dims]);
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
  const int32_t group = op.heads / l.kv_heads;
  std::vector<float> y(static_cast<size_t>(op.rows * out));
  for (int64_t r = 0; r < op.rows; ++r) {
    for (int32_t h = 0; h < l.kv_heads && op.step[r].position >= 0; ++h) {
      const int64_t first = int64_t{h} * group * l.head_dim;
      attend(op, op.step[r], h, static_cast<size_t>(group), op.qkv + r * in + first,
             y.data() + r * out + first);
    }
  }
  deliver_rows(y.data(), op.rows, static_cast<int32_t>(out), op.y);
}

}  // namespace headrace::kernels

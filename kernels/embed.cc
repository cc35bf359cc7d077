#include "kernels/check.h"
#include "kernels/cpu/bodies.h"
#include "kernels/matrix_fragments.h"
#include "kernels/ops.h"

namespace headrace::kernels {

// One row of the table a token, and that row as floats.
Cost cost(const Embed& op) {
  const auto rows = static_cast<uint64_t>(op.rows);
  const auto dim = static_cast<uint64_t>(op.table.cols);
  const int tile = op.table.tiling == Tiling::kFragments ? kStripRows : kTileRows;
  Cost c;
  c.weight_bytes = rows * (op.table.tile_bytes() / static_cast<size_t>(tile));
  c.activation_bytes = rows * sizeof(float) * dim;
  c.flops = quantized(op.table.type) ? 2 * rows * dim : 0;
  return c;
}

void reference(const Embed& op) {
  for (int32_t r = 0; r < op.rows; r++) {
    for (int32_t k = 0; k < op.table.cols; k++)
      op.y[int64_t{r} * op.table.cols + k] =
          op.ids[r] < 0 ? 0.0f : weight_at(op.table, op.ids[r], k);
  }
}

namespace {

// A gather of single dwords, which no instruction set makes faster: one body for all paths.
void embed(const Embed& op, ThreadPool& pool) {
  constexpr int64_t kGrain = 8;  // rows; fewer are not worth waking a thread for
  auto f = [&op](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) {
      KERNELS_CHECK(op.ids[r] >= 0 && op.ids[r] < op.table.rows);
      unpack_row(op.table, op.ids[r], op.y + r * op.table.cols);
    }
  };
  parallel_for(pool, op.rows, kGrain, f);
}

}  // namespace

void embed_portable(const Embed& op, ThreadPool& pool) { embed(op, pool); }
void embed_avx2(const Embed& op, ThreadPool& pool) { embed(op, pool); }
void embed_avx512(const Embed& op, ThreadPool& pool) { embed(op, pool); }

}  // namespace headrace::kernels

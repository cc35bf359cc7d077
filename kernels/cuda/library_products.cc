#include "kernels/cuda/library_products.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/rows.h"

namespace headrace::cuda {
namespace {

using kernels::kStripRows;

// Parts are whole quads of strips: columns that share a sum stay together.
constexpr size_t kQuadStrips = 4;

bool taken(const kernels::Matrix& w, const kernels::Rows& x, int32_t rows) {
  return w.tiling == kernels::Tiling::kFragments && w.rows >= 0 && w.cols >= 1 && rows >= 0 &&
         x.bf16 != nullptr && x.f32 == nullptr && x.q == nullptr && vector_aligned(x.bf16);
}

int32_t pitch_of(const kernels::Matrix& w) {
  return static_cast<int32_t>(kernels::bf16_pitch(w.cols));
}

// Strips that fit, of so many bytes each.
int32_t fitting(size_t memory, size_t strip) {
  return static_cast<int32_t>(
      std::min<size_t>(memory / strip / kQuadStrips * kQuadStrips, 1 << 20));
}

int32_t strips_by_weights(size_t memory, const kernels::Matrix& w) {
  return fitting(memory, size_t{kStripRows} * static_cast<size_t>(pitch_of(w)) * sizeof(uint16_t));
}

uint64_t weight_bytes(const kernels::Matrix& w) {
  return 2 * static_cast<uint64_t>(w.tiles()) * kStripRows * static_cast<uint64_t>(pitch_of(w)) *
         sizeof(uint16_t);
}

}  // namespace

LibraryProducts::LibraryProducts(int ordinal, kernels::Buffer memory, const LibraryRoom& room)
    : room_(room), memory_(std::move(memory)), library_(ordinal) {}

Context LibraryProducts::with_work(const Context& context) const {
  Context with = context;
  with.workspace = memory_.data() + room_.weights + room_.halves;
  with.workspace_bytes = room_.work;
  return with;
}

cudaError_t LibraryProducts::enqueue(const kernels::MatMul& op, const Context& context) {
  if (!taken(op.w, op.x, op.rows) || op.w.paired || op.y == nullptr || op.stride < op.w.rows)
    return cudaErrorInvalidValue;
  if (op.rows == 0 || op.w.rows == 0) return cudaSuccess;
  const int32_t most = strips_by_weights(room_.weights, op.w);
  if (most == 0) return cudaErrorInvalidValue;
  const int32_t strips = op.w.tiles();
  for (int32_t first = 0; first < strips; first += most) {
    const int32_t part = std::min(most, strips - first);
    const cudaError_t error =
        cuda::enqueue(Dequantize{op.w, first, part, weights()}, with_work(context));
    if (error != cudaSuccess) return error;
    const int32_t n = std::min(kStripRows * part, op.w.rows - kStripRows * first);
    library_.multiply({op.rows, n, pitch_of(op.w), op.stride, op.add}, weights(), op.x.bf16,
                      op.y + kStripRows * first, with_work(context));
  }
  return cudaSuccess;
}

cudaError_t LibraryProducts::enqueue(const kernels::MatMulSwiGlu& op, const Context& context) {
  if (!taken(op.w, op.x, op.rows) || !op.w.paired || op.w.rows % kStripRows != 0)
    return cudaErrorInvalidValue;
  if (op.rows == 0 || op.w.rows == 0) return cudaSuccess;
  const int32_t most = std::min(
      strips_by_weights(room_.weights, op.w),
      fitting(room_.halves, size_t{kStripRows} * static_cast<size_t>(op.rows) * sizeof(float)));
  if (most == 0) return cudaErrorInvalidValue;
  const int32_t strips = op.w.tiles();
  for (int32_t first = 0; first < strips; first += most) {
    const int32_t part = std::min(most, strips - first);
    cudaError_t error = cuda::enqueue(Dequantize{op.w, first, part, weights()}, with_work(context));
    if (error != cudaSuccess) return error;
    const int32_t n = kStripRows * part;
    library_.multiply({op.rows, n, pitch_of(op.w), n, false}, weights(), op.x.bf16, halves(),
                      with_work(context));
    error = cuda::enqueue(
        SwiGluPart{{halves(), op.rows, n / 2, op.y}, kStripRows / 2 * first, op.w.rows / 2},
        with_work(context));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

uint64_t LibraryProducts::extra_bytes(const kernels::MatMul& op) { return weight_bytes(op.w); }

uint64_t LibraryProducts::extra_bytes(const kernels::MatMulSwiGlu& op) {
  return weight_bytes(op.w) +
         2 * static_cast<uint64_t>(op.rows) * static_cast<uint64_t>(op.w.rows) * sizeof(float);
}

}  // namespace headrace::cuda

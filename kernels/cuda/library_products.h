#pragma once

#include <cstdint>

#include "kernels/buffer.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/ops.h"

namespace headrace::cuda {

// More rows than this go to the library, where it is asked for: fewer read weights from memory
// longer than they multiply.
constexpr int32_t kLibraryRows = 256;
// Memory of the device for it, each a multiple of 256 bytes: a part of the weights as bf16, what a
// part of gate and up gives, and what the library works in.
struct LibraryRoom {
  size_t weights = size_t{32} << 20;
  size_t halves = size_t{32} << 20;
  size_t work = size_t{32} << 20;
  constexpr size_t bytes() const { return weights + halves + work; }
};

// Products by GemmLibrary, some strips of weights after others: made bf16 (Dequantize), multiplied,
// then SwiGlu where it belongs to the product. Weights are rounded to bf16 (2^-9 of each) and sums
// have an order of the library's, so results differ from those of matmul.h.
class LibraryProducts {
 public:
  // `memory`: room.bytes() of the device. Throws DeviceError as GemmLibrary.
  LibraryProducts(int ordinal, kernels::Buffer memory, const LibraryRoom& room = {});

  size_t version() const { return library_.version(); }
  // Shapes as in matmul.h; false as cudaErrorInvalidValue there, and for K or rows so many that
  // four strips do not fit. Throws DeviceError where the library fails.
  cudaError_t enqueue(const kernels::MatMul& op, const Context& context);
  cudaError_t enqueue(const kernels::MatMulSwiGlu& op, const Context& context);

  // Bytes on top of the operation's cost: weights as bf16, and a product's halves, written and
  // read.
  static uint64_t extra_bytes(const kernels::MatMul& op);
  static uint64_t extra_bytes(const kernels::MatMulSwiGlu& op);

 private:
  Context with_work(const Context& context) const;
  uint16_t* weights() const { return reinterpret_cast<uint16_t*>(memory_.data()); }
  float* halves() const { return reinterpret_cast<float*>(memory_.data() + room_.weights); }

  const LibraryRoom room_;
  kernels::Buffer memory_;
  GemmLibrary library_;
};

}  // namespace headrace::cuda

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/crc32c.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"

// A block of threads has one slice: each thread takes every 256th vector, copies it, and keeps a
// remainder for each of its four words: remainder = remainder * x^(bits of 256 vectors) + word. The
// power is one for all, so that its products are looked up, a byte at a time, in 4 KB of shared
// memory. At the end a thread's four remainders, times the powers of what follows them, become one,
// and those of all threads are added up. Vectors are counted from the slice's end; what is missing
// in front is zeros, which change nothing.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kAhead = 4;  // vectors of a thread in flight
constexpr unsigned kVectorBytes = 16;
constexpr unsigned kVectorBits = 8 * kVectorBytes;

// Powers of x, for the kernel as an argument.
struct Powers {
  uint32_t stride[32];        // x^(i + kThreads * kVectorBits): what bit i becomes, x^0 first
  uint32_t behind[kThreads];  // of the vectors behind thread t's last one
  uint32_t word;              // x^32
  uint32_t start[2];          // a register of ones behind a whole slice, behind the last one
};

struct Shared {
  uint32_t products[4][256];  // of byte i of a word with the stride's power
  uint32_t warps[kWarps];
};

__device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
#pragma unroll 8
  for (int i = 0; i < 32; i++) {
    product ^= a & 0x80000000u ? b : 0;
    a <<= 1;
    b = b >> 1 ^ (b & 1 ? kCrc32cPolynomial : 0);
  }
  return product;
}

// Byte i, value t: the sum of what its bits become.
__device__ __forceinline__ void fill_products(const Powers& powers, Shared* shared) {
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    uint32_t sum = 0;
#pragma unroll
    for (unsigned bit = 0; bit < 8; bit++) {
      if (threadIdx.x >> bit & 1) sum ^= powers.stride[31 - 8 * i - bit];
    }
    shared->products[i][threadIdx.x] = sum;
  }
}

__device__ __forceinline__ uint32_t step(uint32_t remainder, uint32_t word, const Shared* shared) {
  return shared->products[0][remainder & 0xff] ^ shared->products[1][remainder >> 8 & 0xff] ^
         shared->products[2][remainder >> 16 & 0xff] ^ shared->products[3][remainder >> 24] ^ word;
}

// The slice's checksum, in thread 0.
__device__ __forceinline__ uint32_t checksum(uint4 remainder, const Powers& powers, uint32_t start,
                                             Shared* shared) {
  uint32_t own = multiply(remainder.x, powers.word) ^ remainder.y;
  own = multiply(own, powers.word) ^ remainder.z;
  own = multiply(own, powers.word) ^ remainder.w;
  own = multiply(own, powers.word);
  own = multiply(own, powers.behind[threadIdx.x]);
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) own ^= shfl_xor(kFullMask, own, lanes);
  if (threadIdx.x % kWarp == 0) shared->warps[threadIdx.x / kWarp] = own;
  syncthreads();
  uint32_t sum = start;
  for (unsigned w = 0; w < kWarps; w++) sum ^= shared->warps[w];
  return ~sum;
}

struct Copy {
  unsigned char* to;
  const unsigned char* from;
  bool to_pool;  // `to` is the pool; else `from`
};

__global__ void __launch_bounds__(kThreads)
    block_copy_kernel(Copy copy, const uint32_t* ids, size_t block_bytes, unsigned slice_bytes,
                      unsigned slices, uint32_t* sums, Powers powers) {
  HEADRACE_SHARED(Shared, shared);
  fill_products(powers, shared);
  syncthreads();
  grid_dependency_wait();
  grid_dependency_trigger();
  const size_t block = blockIdx.x / slices;
  const size_t begin = size_t{blockIdx.x % slices} * slice_bytes;
  const size_t left = block_bytes - begin;
  const unsigned bytes = left < slice_bytes ? static_cast<unsigned>(left) : slice_bytes;
  const size_t id = ids[block];
  const unsigned char* from = copy.from + (copy.to_pool ? block : id) * block_bytes + begin;
  unsigned char* to = copy.to + (copy.to_pool ? id : block) * block_bytes + begin;
  const int vectors = static_cast<int>(bytes / kVectorBytes);
  constexpr int kRound = kThreads * kAhead;
  uint4 remainder = make_uint4(0, 0, 0, 0);
  // So that the last round ends with the slice.
  int first = static_cast<int>(threadIdx.x) - (kRound - vectors % kRound) % kRound;
  for (; first < vectors; first += kRound) {
    uint4 held[kAhead];
#pragma unroll
    for (int i = 0; i < static_cast<int>(kAhead); i++) {
      const int at = first + i * static_cast<int>(kThreads);
      held[i] = make_uint4(0, 0, 0, 0);
      if (at >= 0) held[i] = ld_stream16(from + static_cast<size_t>(at) * kVectorBytes);
    }
#pragma unroll
    for (int i = 0; i < static_cast<int>(kAhead); i++) {
      const int at = first + i * static_cast<int>(kThreads);
      if (at >= 0) st16(to + static_cast<size_t>(at) * kVectorBytes, held[i]);
      remainder.x = step(remainder.x, held[i].x, shared);
      remainder.y = step(remainder.y, held[i].y, shared);
      remainder.z = step(remainder.z, held[i].z, shared);
      remainder.w = step(remainder.w, held[i].w, shared);
    }
  }
  const uint32_t sum = checksum(remainder, powers, powers.start[bytes < slice_bytes], shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

Powers powers_of(const CopyBlocks& op) {
  Powers p;
  const uint32_t x = crc32c_power(1);
  const uint32_t vector = crc32c_power(kVectorBits);
  p.word = crc32c_power(32);
  p.stride[0] = crc32c_power(uint64_t{kThreads} * kVectorBits);
  for (unsigned i = 1; i < 32; i++) p.stride[i] = crc32c_multiply(p.stride[i - 1], x);
  p.behind[kThreads - 1] = kCrc32cOne;
  for (unsigned t = kThreads - 1; t > 0; t--) {
    p.behind[t - 1] = crc32c_multiply(p.behind[t], vector);
  }
  p.start[0] = crc32c_multiply(~0u, crc32c_power(uint64_t{8} * op.slice_bytes));
  p.start[1] = crc32c_multiply(~0u, crc32c_power(8 * (op.block_bytes % op.slice_bytes)));
  return p;
}

}  // namespace

cudaError_t enqueue(const CopyBlocks& op, const Context& context) {
  if (!vector_aligned(op.pool) || !vector_aligned(op.staged) || op.sums == nullptr ||
      op.block_bytes % kVectorBytes != 0 || op.slice_bytes == 0 ||
      op.slice_bytes > kCopySliceBytesMax || op.slice_bytes % kVectorBytes != 0) {
    return cudaErrorInvalidValue;
  }
  if (op.count == 0 || op.block_bytes == 0) return cudaSuccess;
  const size_t slices = slices_of_block(op);
  if (op.count > kGridMax / slices) return cudaErrorInvalidValue;
  auto* pool = reinterpret_cast<unsigned char*>(op.pool);
  auto* staged = reinterpret_cast<unsigned char*>(op.staged);
  return launch_dependent(
      "block_copy", context.stream, dim3(static_cast<unsigned>(op.count * slices)), dim3(kThreads),
      sizeof(Shared), block_copy_kernel,
      op.to_pool ? Copy{pool, staged, true} : Copy{staged, pool, false}, op.ids, op.block_bytes,
      op.slice_bytes, static_cast<unsigned>(slices), op.sums, powers_of(op));
}

}  // namespace headrace::cuda

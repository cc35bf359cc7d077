#include "tests/gpu/wrappers.h"

#include "kernels/cuda/dev.h"

namespace headrace::gpu {
namespace {

using namespace cuda;  // the facade

constexpr unsigned kWords = 4;  // of a thread

struct Shared {
  uint64_t bar;
  uint64_t pad;
  alignas(16) uint32_t words[kWrapperThreads * kWords];
};

// The words of this thread, and where its results go.
struct Own {
  const uint32_t* in;
  uint32_t* out;
};
__device__ __forceinline__ Own own(const uint32_t* in, uint32_t* out) {
  const size_t at = size_t{kWords} * (size_t{blockIdx.x} * kWrapperThreads + threadIdx.x);
  return {in + at, out + at};
}

// F: the words a, b, c of a thread to the first word of its result.
template <class F>
__global__ void map_kernel(const uint32_t* in, uint32_t* out, F f) {
  const Own o = own(in, out);
  o.out[0] = f(o.in[0], o.in[1], o.in[2]);
}
// The same to two words.
template <class F>
__global__ void pair_kernel(const uint32_t* in, uint32_t* out, F f) {
  const Own o = own(in, out);
  const float2 pair = f(o.in[0]);
  o.out[0] = float_bits(pair.x);
  o.out[1] = float_bits(pair.y);
}

#define HEADRACE_MAP(Name, expression)                                                       \
  struct Name {                                                                              \
    __device__ uint32_t operator()([[maybe_unused]] uint32_t a, [[maybe_unused]] uint32_t b, \
                                   [[maybe_unused]] uint32_t c) const {                      \
      return expression;                                                                     \
    }                                                                                        \
  }
HEADRACE_MAP(Lop3, (lop3<0xea>(a, b, c) ^ lop3<0x6a>(a, b, c) << 1 ^ lop3<0xca>(a, b, c) >> 1));
HEADRACE_MAP(Prmt, prmt(a, b, c));
HEADRACE_MAP(FastExp2, float_bits(fast_exp2(bits_float(a))));
HEADRACE_MAP(FastRsqrt, float_bits(fast_rsqrt(bits_float(a))));
HEADRACE_MAP(FmaF16x2, fma_f16x2(a, b, c));
HEADRACE_MAP(FmaBf16x2, fma_bf16x2(a, b, c));
HEADRACE_MAP(HalfToFloat, float_bits(half_to_float(static_cast<uint16_t>(a))));
HEADRACE_MAP(FloatToHalf, float_to_half(bits_float(a)));
HEADRACE_MAP(Bf16ToFloat, float_bits(bf16_to_float(static_cast<uint16_t>(a))));
HEADRACE_MAP(FloatToBf16, float_to_bf16(bits_float(a)));
HEADRACE_MAP(FloatsToHalves, floats_to_halves(bits_float(a), bits_float(b)));
HEADRACE_MAP(FloatsToBf16s, floats_to_bf16s(bits_float(a), bits_float(b)));
HEADRACE_MAP(FloatsToE4m3s, floats_to_e4m3s(bits_float(a), bits_float(b)));
HEADRACE_MAP(FloatBits, float_bits(bits_float(a)));
#undef HEADRACE_MAP

struct Halves {
  __device__ float2 operator()(uint32_t a) const { return halves_to_floats(a); }
};
struct Bf16s {
  __device__ float2 operator()(uint32_t a) const { return bf16s_to_floats(a); }
};
struct E4m3s {
  __device__ float2 operator()(uint32_t a) const {
    return e4m3s_to_floats(static_cast<uint16_t>(a));
  }
};

__global__ void load_kernel(const uint32_t* in, uint32_t* out, bool stream) {
  const Own o = own(in, out);
  st16(o.out, stream ? ld_stream16(o.in) : ld16(o.in));
}

__global__ void load8_kernel(const uint32_t* in, uint32_t* out) {
  const Own o = own(in, out);
  st8(o.out + 2, ld8(o.in));
}

// Odd threads copy nothing, which leaves zeros; the second group replaces the first one's words of
// a neighbour only after that was waited for.
__global__ void cp_async_kernel(const uint32_t* in, uint32_t* out) {
  HEADRACE_SHARED(Shared, shared);
  const Own o = own(in, out);
  uint32_t* const to = shared->words + kWords * threadIdx.x;
  cp_async16(to, o.in, threadIdx.x % 2 == 0);
  cp_commit();
  cp_wait<0>();
  syncthreads();
  const uint4 first = ld16(shared->words + kWords * (threadIdx.x ^ 1));
  syncthreads();
  cp_async16(to, o.in, true);
  cp_commit();
  cp_async16(to, o.in, true);
  cp_commit();
  cp_wait<1>();
  cp_wait<0>();
  syncthreads();
  const uint4 second = ld16(shared->words + kWords * (threadIdx.x ^ 2));
  st16(o.out, uint4{first.x, first.w, second.y, second.z});
}

enum class Matrices { kX4, kX4Trans, kX2 };

__global__ void ldmatrix_kernel(const uint32_t* in, uint32_t* out, Matrices which) {
  HEADRACE_SHARED(Shared, shared);
  const Own o = own(in, out);
  uint32_t* const row = shared->words + kWords * threadIdx.x;
  st16(row, ld16(o.in));
  syncthreads();
  uint32_t r[4] = {};
  uint32_t two[2] = {};
  if (which == Matrices::kX4) {
    ldmatrix_x4(r, row);
  } else if (which == Matrices::kX4Trans) {
    ldmatrix_x4_trans(r, row);
  } else {
    ldmatrix_x2(two, row);
    r[0] = two[0];
    r[1] = two[1];
  }
  st16(o.out, uint4{r[0], r[1], r[2], r[3]});
}

// d = a b + c with c the thread's number, over the words of the lane and its neighbour.
__global__ void mma_kernel(const uint32_t* in, uint32_t* out, bool bf16) {
  const Own o = own(in, out);
  const uint32_t a[4] = {o.in[0], o.in[1], o.in[2], o.in[3]};
  const uint32_t b[2] = {shfl_xor(kFullMask, o.in[0], 1), shfl_xor(kFullMask, o.in[3], 2)};
  const float c = static_cast<float>(threadIdx.x);
  float d[4] = {c, 2 * c, -c, 0};
  if (bf16) {
    mma_bf16_16816(d, a, b);
  } else {
    mma_f16_16816(d, a, b);
  }
  for (unsigned i = 0; i < 4; i++) o.out[i] = float_bits(d[i]);
}

// Two rounds of a barrier, each of 128 bytes a copy and one arrival beside.
__global__ void bulk_kernel(const uint32_t* in, uint32_t* out) {
  HEADRACE_SHARED(Shared, shared);
  const Own o = own(in, out);
  const uint32_t* const block = o.in - kWords * threadIdx.x;
  constexpr uint32_t kBytes = 16 * kWrapperThreads;
  if (threadIdx.x == 0) {
    mbar_init(&shared->bar, 2);
    mbar_fence_init();
  }
  syncthreads();
  for (uint32_t round = 0; round < 2; round++) {
    if (threadIdx.x == 0) {
      mbar_expect_tx(&shared->bar, kBytes);
      bulk_to_shared(shared->words, block, kBytes, &shared->bar);
    }
    if (threadIdx.x == 1) mbar_arrive(&shared->bar);
    mbar_wait(&shared->bar, round);
    const uint4 v = ld16(shared->words + kWords * ((threadIdx.x + 1 + round) % kWrapperThreads));
    o.out[2 * round] = v.x;
    o.out[2 * round + 1] = v.w;
    syncthreads();
  }
  if (threadIdx.x == 0) mbar_invalidate(&shared->bar);
}

__global__ void shuffle_kernel(const uint32_t* in, uint32_t* out) {
  const Own o = own(in, out);
  const uint32_t v = o.in[0];
  o.out[0] = shfl_xor(kFullMask, v, 5);
  o.out[1] = static_cast<uint32_t>(shfl_down(kFullMask, static_cast<int>(v), 7));
  o.out[2] = float_bits(shfl_idx(kFullMask, bits_float(v), static_cast<int>(threadIdx.x * 3 % 32)));
  o.out[3] = shfl_down(kFullMask, v, 0) + shfl_idx(kFullMask, v, 35);  // lanes modulo 32
}

__global__ void vote_kernel(const uint32_t* in, uint32_t* out) {
  const Own o = own(in, out);
  const uint32_t v = o.in[0];
  o.out[0] = ballot(kFullMask, v % 3 == 0);
  o.out[1] = any(kFullMask, v == 7);
  o.out[2] = all(kFullMask, v != 7);
  o.out[3] = all(kFullMask, true) + 2u * any(kFullMask, threadIdx.x == 31);
}

__global__ void syncwarp_kernel(const uint32_t* in, uint32_t* out) {
  HEADRACE_SHARED(Shared, shared);
  const Own o = own(in, out);
  shared->words[threadIdx.x] = o.in[0];
  syncwarp();
  o.out[0] = shared->words[31 - threadIdx.x];
}

// What all threads of all blocks leave in the first words, in any order the same.
__global__ void atomic_add_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t v = own(in, out).in[0] & 0xffff;
  atomic_add(out, v);
  atomic_add(reinterpret_cast<int*>(out + 1), -static_cast<int>(v));
  atomic_add(reinterpret_cast<unsigned long long*>(out + 2), 0x100000001ull * v);
  atomic_add(reinterpret_cast<float*>(out + 4), static_cast<float>(v % 64));  // exact
}

__global__ void atomic_max_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t v = own(in, out).in[0];
  atomic_max(out, v);
  atomic_max(reinterpret_cast<int*>(out + 1), static_cast<int>(v));
}

// One thread alone finds a zero; what each of the others finds is not.
__global__ void atomic_cas_kernel(const uint32_t*, uint32_t* out) {
  if (atomic_cas(out, 0u, 77u) == 0) atomic_add(out + 1, 1u);
  if (atomic_cas(reinterpret_cast<int*>(out + 2), 0, -5) == -5) atomic_add(out + 3, 1u);
  if (atomic_cas(reinterpret_cast<unsigned long long*>(out + 4), 0ull, 9ull << 32) == 0)
    atomic_add(out + 6, 1u);
}

// The block that comes last sees what all others wrote in front of their fence.
__global__ void fence_kernel(const uint32_t* in, uint32_t* out) {
  const Own o = own(in, out);
  const unsigned threads = gridDim.x * kWrapperThreads;
  uint32_t* const count = out + size_t{kWords} * threads - 1;  // no thread's first word
  o.out[0] = o.in[0];
  thread_fence();
  syncthreads();
  if (threadIdx.x != 0) return;
  if (atomic_add(count, 1u) + 1 != gridDim.x) return;
  thread_fence();
  uint32_t sum = 0;
  for (unsigned t = 0; t < threads; t++) sum += out[size_t{kWords} * t];
  out[1] = sum;
}

__global__ void first_kernel(const uint32_t* in, uint32_t* out) {
  grid_dependency_wait();
  grid_dependency_trigger();
  const Own o = own(in, out);
  o.out[0] = o.in[0] ^ 0x5a5a5a5a;
}
__global__ void second_kernel(uint32_t* out) {
  grid_dependency_wait();
  grid_dependency_trigger();
  const Own o = own(out, out);
  o.out[1] = o.in[0] + 1;
}

struct Run {
  unsigned blocks;
  const uint32_t* in;
  uint32_t* out;
  cudaStream_t stream;

  template <class... P, class... A>
  cudaError_t of(void (*kernel)(P...), A... more) const {
    return launch("wrapper", stream, dim3(blocks), dim3(kWrapperThreads), sizeof(Shared), kernel,
                  more...);
  }
  template <class F>
  cudaError_t map(F f) const {
    return of(map_kernel<F>, in, out, f);
  }
  template <class F>
  cudaError_t pairs(F f) const {
    return of(pair_kernel<F>, in, out, f);
  }
  cudaError_t dependent() const {
    const cudaError_t error = launch_dependent("first", stream, dim3(blocks), dim3(kWrapperThreads),
                                               0, first_kernel, in, out);
    if (error != cudaSuccess) return error;
    return launch_dependent("second", stream, dim3(blocks), dim3(kWrapperThreads), 0, second_kernel,
                            out);
  }
};

cudaError_t convert(Wrapper wrapper, const Run& r) {
  switch (wrapper) {
    case Wrapper::kHalfToFloat:
      return r.map(HalfToFloat{});
    case Wrapper::kFloatToHalf:
      return r.map(FloatToHalf{});
    case Wrapper::kBf16ToFloat:
      return r.map(Bf16ToFloat{});
    case Wrapper::kFloatToBf16:
      return r.map(FloatToBf16{});
    case Wrapper::kHalvesToFloats:
      return r.pairs(Halves{});
    case Wrapper::kFloatsToHalves:
      return r.map(FloatsToHalves{});
    case Wrapper::kBf16sToFloats:
      return r.pairs(Bf16s{});
    case Wrapper::kFloatsToBf16s:
      return r.map(FloatsToBf16s{});
    case Wrapper::kE4m3sToFloats:
      return r.pairs(E4m3s{});
    case Wrapper::kFloatsToE4m3s:
      return r.map(FloatsToE4m3s{});
    case Wrapper::kFloatBits:
      return r.map(FloatBits{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t enqueue(Wrapper wrapper, unsigned threads, const uint32_t* in, uint32_t* out,
                    cudaStream_t stream) {
  const Run r{threads / kWrapperThreads, in, out, stream};
  switch (wrapper) {
    case Wrapper::kLd16:
      return r.of(load_kernel, in, out, false);
    case Wrapper::kLdStream16:
      return r.of(load_kernel, in, out, true);
    case Wrapper::kLd8:
      return r.of(load8_kernel, in, out);
    case Wrapper::kCpAsync16:
      return r.of(cp_async_kernel, in, out);
    case Wrapper::kLdmatrixX4:
      return r.of(ldmatrix_kernel, in, out, Matrices::kX4);
    case Wrapper::kLdmatrixX4Trans:
      return r.of(ldmatrix_kernel, in, out, Matrices::kX4Trans);
    case Wrapper::kLdmatrixX2:
      return r.of(ldmatrix_kernel, in, out, Matrices::kX2);
    case Wrapper::kMmaF16:
      return r.of(mma_kernel, in, out, false);
    case Wrapper::kMmaBf16:
      return r.of(mma_kernel, in, out, true);
    case Wrapper::kLop3:
      return r.map(Lop3{});
    case Wrapper::kPrmt:
      return r.map(Prmt{});
    case Wrapper::kFastExp2:
      return r.map(FastExp2{});
    case Wrapper::kFastRsqrt:
      return r.map(FastRsqrt{});
    case Wrapper::kFmaF16x2:
      return r.map(FmaF16x2{});
    case Wrapper::kFmaBf16x2:
      return r.map(FmaBf16x2{});
    case Wrapper::kBulk:
      return r.of(bulk_kernel, in, out);
    case Wrapper::kShuffles:
      return r.of(shuffle_kernel, in, out);
    case Wrapper::kVotes:
      return r.of(vote_kernel, in, out);
    case Wrapper::kSyncwarp:
      return r.of(syncwarp_kernel, in, out);
    case Wrapper::kAtomicAdd:
      return r.of(atomic_add_kernel, in, out);
    case Wrapper::kAtomicMax:
      return r.of(atomic_max_kernel, in, out);
    case Wrapper::kAtomicCas:
      return r.of(atomic_cas_kernel, in, out);
    case Wrapper::kFence:
      return r.of(fence_kernel, in, out);
    case Wrapper::kDependency:
      return r.dependent();
    default:
      return convert(wrapper, r);
  }
}

}  // namespace headrace::gpu

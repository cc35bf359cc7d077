#include "kernels/cuda/dev.h"

// Every wrapper of the facade that is an instruction of its own, called once, so that the compiled
// code can be searched for it. Not run.

namespace headrace::cuda {
namespace {

struct Shared {
  uint64_t bar;
  alignas(16) unsigned char bytes[4096];
};

__global__ void probe_memory(unsigned char* to, const unsigned char* from) {
  st16(to + 16 * threadIdx.x, ld16(from + 16 * threadIdx.x));
  st8(to + 8 * threadIdx.x, ld8(from + 8192 + 8 * threadIdx.x));
  st16(to + 16 * threadIdx.x, ld_stream16(from + 16384 + 16 * threadIdx.x));
}

__global__ void probe_cp_async(unsigned char* to, const unsigned char* from, bool valid) {
  HEADRACE_SHARED(Shared, shared);
  cp_async16(shared->bytes + 16 * threadIdx.x, from + 16 * threadIdx.x, valid);
  cp_commit();
  cp_wait<0>();
  st16(to + 16 * threadIdx.x, ld16(shared->bytes + 16 * threadIdx.x));
}

__global__ void probe_matrices(float* to, const uint32_t* from) {
  HEADRACE_SHARED(Shared, shared);
  st16(shared->bytes + 16 * threadIdx.x, ld16(from + 4 * threadIdx.x));
  syncthreads();
  uint32_t a[4];
  uint32_t c[4];
  uint32_t b[2];
  float d[4] = {0, 0, 0, 0};
  ldmatrix_x4(a, shared->bytes + 16 * threadIdx.x);
  ldmatrix_x4_trans(c, shared->bytes + 16 * threadIdx.x);
  ldmatrix_x2(b, shared->bytes + 16 * threadIdx.x);
  mma_f16_16816(d, a, b);
  mma_bf16_16816(d, c, b);
  for (int i = 0; i < 4; i++) to[4 * threadIdx.x + i] = d[i];
}

__global__ void probe_arithmetic(uint32_t* to, const uint32_t* from, const float* floats) {
  const uint32_t a = from[0];
  const uint32_t b = from[1];
  const uint32_t c = from[2];
  to[0] = lop3<0xea>(a, b, c);
  to[1] = prmt(a, b, c);
  to[2] = fma_f16x2(a, b, c);
  to[3] = fma_bf16x2(a, b, c);
  to[4] = floats_to_halves(fast_exp2(floats[0]), fast_rsqrt(floats[1]));
  to[5] = floats_to_bf16s(floats[2], floats[3]);
  to[6] = floats_to_e4m3s(floats[4], floats[5]);
  const float2 e = e4m3s_to_floats(static_cast<uint16_t>(c));
  to[7] = float_to_half(e.x) + float_to_bf16(e.y);
  const float2 h = halves_to_floats(a);
  const float2 f = bf16s_to_floats(b);
  const float single = half_to_float(static_cast<uint16_t>(a)) + bf16_to_float(b >> 16);
  to[8] = floats_to_bf16s(h.x + f.x, h.y + f.y + single);
  to[9] = float_bits(bits_float(c) + floats[6]);
}

__global__ void probe_bulk(unsigned char* to, const unsigned char* from) {
  HEADRACE_SHARED(Shared, shared);
  if (threadIdx.x == 0) {
    mbar_init(&shared->bar, 2);
    mbar_fence_init();
  }
  syncthreads();
  if (threadIdx.x == 0) {
    mbar_expect_tx(&shared->bar, 512);
    bulk_to_shared(shared->bytes, from, 512, &shared->bar);
  }
  if (threadIdx.x == 1) mbar_arrive(&shared->bar);
  mbar_wait(&shared->bar, 0);
  st16(to + 16 * threadIdx.x, ld16(shared->bytes + 16 * threadIdx.x));
  syncthreads();
  if (threadIdx.x == 0) mbar_invalidate(&shared->bar);
}

__global__ void probe_lanes(uint32_t* to, const uint32_t* from) {
  uint32_t v = from[threadIdx.x];
  v += shfl_xor(kFullMask, v, 3);
  v += shfl_down(kFullMask, v, 2);
  v += shfl_idx(kFullMask, v, 1);
  v += ballot(kFullMask, v > 3);
  v += any(kFullMask, v > 5) + 2 * all(kFullMask, v > 7);
  syncwarp();
  to[threadIdx.x] = v;
}

__global__ void probe_atomics(uint32_t* to, int* ints, float* sum) {
  to[0] = atomic_add(to + 1, to[3]);
  ints[0] = atomic_max(ints + 1, ints[2]);
  to[2] = atomic_cas(to + 4, to[5], to[6]);
  thread_fence();
  atomic_add(sum, 1.0f);
}

__global__ void probe_dependency(uint32_t* to, const uint32_t* from) {
  grid_dependency_wait();
  to[threadIdx.x] = from[threadIdx.x];
  grid_dependency_trigger();
}

}  // namespace

// Kernels that nothing starts would not be compiled.
cudaError_t start_probes(cudaStream_t stream, unsigned char* to, const unsigned char* from,
                         uint32_t* words, float* floats, int* ints) {
  const dim3 one(1);
  const dim3 warp(32);
  const size_t bytes = sizeof(Shared);
  cudaError_t error = launch("memory", stream, one, warp, 0, probe_memory, to, from);
  error = launch("cp_async", stream, one, warp, bytes, probe_cp_async, to, from, true);
  error = launch("matrices", stream, one, warp, bytes, probe_matrices, floats, words);
  error = launch("arithmetic", stream, one, warp, 0, probe_arithmetic, words, words, floats);
  error = launch("bulk", stream, one, warp, bytes, probe_bulk, to, from);
  error = launch("lanes", stream, one, warp, 0, probe_lanes, words, words);
  error = launch("atomics", stream, one, warp, 0, probe_atomics, words, ints, floats);
  error = launch_dependent("dependency", stream, one, warp, 0, probe_dependency, words, words);
  return error;
}

}  // namespace headrace::cuda

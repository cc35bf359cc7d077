#pragma once

// The facade's real body: inline PTX, compiled by nvcc for sm_80 and later. Names in brackets are
// sections of the PTX ISA ("Parallel Thread Execution ISA", NVIDIA), by title, since their numbers
// move. Volatile and "memory" keep an instruction in its place among others that touch memory; pure
// arithmetic has neither, so that the compiler may move it.
//
// What only sm_90 has traps before it: launchers choose other kernels there.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/real/cuda_body/launch_body.h"

#define HEADRACE_DEVICE __device__ __forceinline__

// The block's dynamic shared memory as a T.
#define HEADRACE_SHARED(T, name)                                     \
  extern __shared__ __align__(128) unsigned char headrace_shared_[]; \
  T* const name = reinterpret_cast<T*>(headrace_shared_)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define HEADRACE_SM90(...) __trap()
#else
#define HEADRACE_SM90(...) asm volatile(__VA_ARGS__)
#endif

namespace headrace::cuda {

constexpr uint32_t kFullMask = 0xffffffff;

// A generic address as one of shared memory. cvta.to.shared [Data Movement: cvta].
HEADRACE_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- memory

// ld.v4.u32 [Data Movement: ld]: LDG.E.128 or LDS.128, as the compiler knows the address.
HEADRACE_DEVICE uint4 ld16(const void* p) { return *static_cast<const uint4*>(p); }
// st.v4.u32 [Data Movement: st].
HEADRACE_DEVICE void st16(void* p, uint4 value) { *static_cast<uint4*>(p) = value; }
// ld.v2.u32 [Data Movement: ld].
HEADRACE_DEVICE uint2 ld8(const void* p) { return *static_cast<const uint2*>(p); }
// st.v2.u32 [Data Movement: st].
HEADRACE_DEVICE void st8(void* p, uint2 value) { *static_cast<uint2*>(p) = value; }

// ld.global.L1::no_allocate.v4.u32 [Data Movement: ld]. Not .nc: what the launch in front wrote may
// be read with it, after grid_dependency_wait().
HEADRACE_DEVICE uint4 ld_stream16(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return v;
}

// cp.async.cg.shared.global, 16 bytes, past L1; a source size of 0 fills with zeros and reads
// nothing [Data Movement: Non-bulk copy: cp.async].
HEADRACE_DEVICE void cp_async16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}
// cp.async.commit_group [Data Movement: Non-bulk copy: cp.async.commit_group].
HEADRACE_DEVICE void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// cp.async.wait_group: at most kPending groups are left, of this thread [cp.async.wait_group].
template <int kPending>
HEADRACE_DEVICE void cp_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- matrices

// ldmatrix.sync.aligned.m8n8.x4.shared.b16 [Warp Level Matrix Instructions: ldmatrix].
HEADRACE_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same with .trans.
HEADRACE_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// ldmatrix.sync.aligned.m8n8.x2.shared.b16: addresses of lanes 0 to 15.
HEADRACE_DEVICE void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 [Warp Level Matrix Instructions: mma, fragments
// of m16n8k16 with .f16 and .bf16].
HEADRACE_DEVICE void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same of .bf16.
HEADRACE_DEVICE void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- bits and arithmetic

// lop3.b32: bit i of kTable is the result where a, b, c read i in binary [Logic: lop3].
template <unsigned kTable>
HEADRACE_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return r;
}
// prmt.b32: four bytes of {b, a}, one by each nibble of the selector [Data Movement: prmt].
HEADRACE_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}
// ex2.approx.ftz.f32 [Floating Point: ex2].
HEADRACE_DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// rsqrt.approx.ftz.f32 [Floating Point: rsqrt].
HEADRACE_DEVICE float fast_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// fma.rn.f16x2 [Half Precision Floating Point: fma].
HEADRACE_DEVICE uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// fma.rn.bf16x2 [Half Precision Floating Point: fma].
HEADRACE_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// ---- barriers in shared memory, bulk copies (sm_90)

// mbarrier.init.shared::cta.b64 [Parallel Synchronization: mbarrier.init].
HEADRACE_DEVICE void mbar_init(uint64_t* bar, uint32_t arrivals) {
  HEADRACE_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals)
                : "memory");
}
// fence.mbarrier_init.release.cluster: makes it known to the copy engine [membar / fence].
HEADRACE_DEVICE void mbar_fence_init() {
  HEADRACE_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// mbarrier.arrive.expect_tx.shared::cta.b64: arrives once and waits for as many bytes more
// [mbarrier.arrive].
HEADRACE_DEVICE void mbar_expect_tx(uint64_t* bar, uint32_t bytes) {
  HEADRACE_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
                "r"(bytes)
                : "memory");
}
// mbarrier.arrive.shared::cta.b64 [mbarrier.arrive].
HEADRACE_DEVICE void mbar_arrive(uint64_t* bar) {
  HEADRACE_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
// mbarrier.inval.shared::cta.b64 [mbarrier.inval].
HEADRACE_DEVICE void mbar_invalidate(uint64_t* bar) {
  HEADRACE_SM90("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}
// mbarrier.try_wait.parity.shared::cta.b64, until the phase of that parity is over
// [mbarrier.test_wait / mbarrier.try_wait].
HEADRACE_DEVICE void mbar_wait(uint64_t* bar, uint32_t parity) {
  HEADRACE_SM90(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n"
      "}" ::"r"(shared_address(bar)),
      "r"(parity)
      : "memory");
}
// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes; addresses and size are
// multiples of 16 [Data Movement: Bulk copy: cp.async.bulk].
HEADRACE_DEVICE void bulk_to_shared(void* shared, const void* global, uint32_t bytes,
                                    uint64_t* bar) {
  HEADRACE_SM90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(bar))
      : "memory");
}

// ---- lanes and threads

// shfl.sync.bfly.b32 [Data Movement: shfl.sync].
template <class T>
HEADRACE_DEVICE T shfl_xor(uint32_t mask, T value, int lanes) {
  return __shfl_xor_sync(mask, value, lanes);
}
// shfl.sync.down.b32.
template <class T>
HEADRACE_DEVICE T shfl_down(uint32_t mask, T value, int delta) {
  return __shfl_down_sync(mask, value, delta);
}
// shfl.sync.idx.b32.
template <class T>
HEADRACE_DEVICE T shfl_idx(uint32_t mask, T value, int lane) {
  return __shfl_sync(mask, value, lane);
}
// vote.sync.ballot.b32, .any.pred, .all.pred [Parallel Synchronization: vote.sync].
HEADRACE_DEVICE uint32_t ballot(uint32_t mask, bool p) { return __ballot_sync(mask, p); }
HEADRACE_DEVICE bool any(uint32_t mask, bool p) { return __any_sync(mask, p) != 0; }
HEADRACE_DEVICE bool all(uint32_t mask, bool p) { return __all_sync(mask, p) != 0; }
// barrier.sync 0 [Parallel Synchronization: bar / barrier].
HEADRACE_DEVICE void syncthreads() { __syncthreads(); }
// bar.warp.sync [Parallel Synchronization: bar.warp.sync].
HEADRACE_DEVICE void syncwarp(uint32_t mask = kFullMask) { __syncwarp(mask); }

// atom.add of .s32, .u32, .u64, .f32 [Parallel Synchronization: atom].
template <class T>
HEADRACE_DEVICE T atomic_add(T* p, T value) {
  return atomicAdd(p, value);
}
// atom.max of .s32, .u32.
template <class T>
HEADRACE_DEVICE T atomic_max(T* p, T value) {
  return atomicMax(p, value);
}
// atom.cas of .b32, .b64.
template <class T>
HEADRACE_DEVICE T atomic_cas(T* p, T expected, T desired) {
  return atomicCAS(p, expected, desired);
}
// fence.acq_rel.gpu, as __threadfence() compiles [Parallel Synchronization: membar / fence].
HEADRACE_DEVICE void thread_fence() { __threadfence(); }

// griddepcontrol.wait and .launch_dependents [Parallel Synchronization: griddepcontrol]. Before
// sm_90 no launch overlaps the one in front, so there is nothing to say.
HEADRACE_DEVICE void grid_dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
HEADRACE_DEVICE void grid_dependency_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- conversions [Data Movement: cvt], through the toolkit's own functions

// cvt.f32.f16, cvt.rn.f16.f32.
HEADRACE_DEVICE float half_to_float(uint16_t h) { return __half2float(__ushort_as_half(h)); }
HEADRACE_DEVICE uint16_t float_to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }
// A shift; cvt.rn.bf16.f32.
HEADRACE_DEVICE float bf16_to_float(uint16_t b) {
  return __uint_as_float(static_cast<uint32_t>(b) << 16);
}
HEADRACE_DEVICE uint16_t float_to_bf16(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
// cvt.f32.f16 twice, cvt.rn.f16x2.f32.
HEADRACE_DEVICE float2 halves_to_floats(uint32_t h) {
  return make_float2(half_to_float(static_cast<uint16_t>(h)),
                     half_to_float(static_cast<uint16_t>(h >> 16)));
}
HEADRACE_DEVICE uint32_t floats_to_halves(float lo, float hi) {
  uint32_t h;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(hi), "f"(lo));
  return h;
}
// A shift and a mask; cvt.rn.bf16x2.f32.
HEADRACE_DEVICE float2 bf16s_to_floats(uint32_t b) {
  return make_float2(__uint_as_float(b << 16), __uint_as_float(b & 0xffff0000u));
}
HEADRACE_DEVICE uint32_t floats_to_bf16s(float lo, float hi) {
  uint32_t b;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(b) : "f"(hi), "f"(lo));
  return b;
}
// No instruction: registers have no type.
HEADRACE_DEVICE uint32_t float_bits(float x) { return __float_as_uint(x); }
HEADRACE_DEVICE float bits_float(uint32_t b) { return __uint_as_float(b); }
// cvt.rn.f16x2.e4m3x2, cvt.rn.satfinite.e4m3x2.f32 from sm_89 on, integer code before it.
HEADRACE_DEVICE float2 e4m3s_to_floats(uint16_t e) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(e, __NV_E4M3)));
}
HEADRACE_DEVICE uint16_t floats_to_e4m3s(float lo, float hi) {
  return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E4M3);
}

}  // namespace headrace::cuda

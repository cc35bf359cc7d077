#pragma once

// The one header kernel sources (kernels/cuda/*.cu) include: what a kernel may use of a GPU. Every
// PTX instruction is a wrapper here, with two bodies of the same name and signature, chosen by
// include path: real/cuda_body under nvcc; the emulator's, which runs kernels as ordinary C++, in
// the tests. In namespace headrace::cuda, callable on the device:
//
//   constexpr uint32_t kFullMask = 0xffffffff;      // all 32 lanes
//
// Memory. Addresses are aligned to the width; vectors move only through these.
//   uint4 ld16(const void* p)                       void st16(void* p, uint4 value)
//   uint2 ld8(const void* p)                        void st8(void* p, uint2 value)
//   uint4 ld_stream16(const void* p)                global, read once: first out of the caches
//   void cp_async16(void* shared, const void* global, bool valid = true)   false: writes zeros
//   void cp_commit()                                template <int kPending> void cp_wait()
//
// Matrices. Fragments as in the PTX ISA; d += a b, f32 sums.
//   void ldmatrix_x4(uint32_t (&r)[4], const void* row)        each lane gives one row's address
//   void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row)
//   void ldmatrix_x2(uint32_t (&r)[2], const void* row)        lanes 0 to 15 give it
//   void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//   void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//
// Bits and arithmetic
//   template <unsigned kTable> uint32_t lop3(uint32_t a, uint32_t b, uint32_t c)
//   uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector)
//   float fast_exp2(float x)                        float fast_rsqrt(float x)
//   uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c)     fma_bf16x2 alike
//
// Barriers in shared memory and bulk copies (sm_90)
//   void mbar_init(uint64_t* bar, uint32_t arrivals)           void mbar_fence_init()
//   void mbar_expect_tx(uint64_t* bar, uint32_t bytes)         arrives, too
//   void mbar_arrive(uint64_t* bar)                            void mbar_invalidate(uint64_t* bar)
//   void mbar_wait(uint64_t* bar, uint32_t parity)
//   void bulk_to_shared(void* shared, const void* global, uint32_t bytes, uint64_t* bar)
//
// Lanes and threads. T: int, uint32_t, float.
//   T shfl_xor(uint32_t mask, T value, int lanes)   T shfl_down(uint32_t mask, T value, int delta)
//   T shfl_idx(uint32_t mask, T value, int lane)
//   uint32_t ballot(uint32_t mask, bool p)          bool any(uint32_t mask, bool p)     all alike
//   void syncthreads()                              void syncwarp(uint32_t mask = kFullMask)
//   T atomic_add(T* p, T value)                     T: int, uint32_t, unsigned long long, float
//   T atomic_max(T* p, T value)                     T: int, uint32_t
//   T atomic_cas(T* p, T expected, T desired)       T: int, uint32_t, unsigned long long
//   void thread_fence()                             all give the value before
//   void grid_dependency_wait()                     what the launch in front wrote is there
//   void grid_dependency_trigger()                  the launch behind may begin
//
// Conversions, to nearest even; low half first
//   float half_to_float(uint16_t h)                 uint16_t float_to_half(float x)
//   float bf16_to_float(uint16_t b)                 uint16_t float_to_bf16(float x)
//   float2 halves_to_floats(uint32_t h)             uint32_t floats_to_halves(float lo, float hi)
//   float2 bf16s_to_floats(uint32_t b)              uint32_t floats_to_bf16s(float lo, float hi)
//   float2 e4m3s_to_floats(uint16_t e)              uint16_t floats_to_e4m3s(float lo, float hi)
//   uint32_t float_bits(float x)                    float bits_float(uint32_t b)      as they are
//
// Dynamic shared memory, one struct a kernel (or an array's element type), 128-byte aligned:
//   HEADRACE_SHARED(T, name);                       T* name
//
// On the host
//   template <class... P, class... A>
//   cudaError_t launch(const char* name, cudaStream_t stream, dim3 grid, dim3 block,
//                      size_t shared_bytes, void (*kernel)(P...), A&&... args)
//   launch_dependent(...) alike: may begin before the launch in front has ended; reads what that
//   wrote only after grid_dependency_wait().

#include "cuda_body/dev_body.h"

#pragma once

// The facade's emulated body (kernels/cuda/dev.h says what each function means): a kernel is
// ordinary C++ here, and its threads are the emulator's. Memory is touched in this header, inlined
// into the kernel, so that sanitizers and access hooks see it as the kernel's own; all else is
// asked of the emulator. Misuse ends the grid and is reported with the kernel's line.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/simt/launch.h"
#include "tests/simt/thread.h"

#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#undef __shared__  // shared memory has exact bounds and a NaN fill: HEADRACE_SHARED alone

#define HEADRACE_SHARED(T, name) \
  T* name = ::headrace::cuda::emulated::shared<T>(::headrace::simt::Site::here())

namespace headrace::cuda {

using simt::Site;

inline constexpr uint32_t kFullMask = 0xffffffff;

namespace emulated {

// One access of 16 bytes, whatever the compiler makes of four words.
using Wide __attribute__((may_alias)) = __uint128_t;
using Half __attribute__((may_alias)) = uint64_t;

template <class T>
T* shared(Site at) {
  return static_cast<T*>(simt::shared_memory(sizeof(T), at));
}

template <size_t kBytes>
void check_aligned(const void* p, const char* what, Site at) {
  if (reinterpret_cast<uintptr_t>(p) % kBytes) simt::misuse(what, at);
}

__forceinline__ void move16(void* to, const void* from) {
  *static_cast<Wide*>(to) = *static_cast<const Wide*>(from);
}
__forceinline__ void fill16(void* to, Wide value) { *static_cast<Wide*>(to) = value; }
// What a copy's target holds until the copy is waited for: NaN in every float format.
__forceinline__ void poison16(void* to) { fill16(to, ~Wide{0}); }

inline void move_bulk(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += 16) {
    move16(static_cast<char*>(to) + i, static_cast<const char*>(from) + i);
  }
}

__forceinline__ void do_copy(const simt::HeldCopy& copy) {
  if (!copy.shared) return;
  if (copy.valid) {
    move16(copy.shared, copy.global);
  } else {
    fill16(copy.shared, 0);
  }
}

inline uint4 ldmatrix_row(const void* row, bool used, Site at) {
  if (!used) return {};
  check_aligned<16>(row, "ldmatrix: row is not aligned to 16 bytes", at);
  if (!simt::in_shared(row, 16)) simt::misuse("ldmatrix: row is not in shared memory", at);
  return std::bit_cast<uint4>(*static_cast<const Wide*>(row));
}

inline void check_bar(const uint64_t* bar, Site at) {
  check_aligned<8>(bar, "barrier is not aligned to 8 bytes", at);
  if (!simt::in_shared(bar, 8)) simt::misuse("barrier is not in shared memory", at);
}
inline void check_live(const uint64_t* bar, Site at) {
  check_bar(bar, at);
  if (*bar != simt::kBarrierWord) simt::misuse("not a barrier, or overwritten", at);
}

// Atomics publish what the thread wrote only behind a fence; without one they order nothing.
template <class T, class Change>
T change(T* p, Change change_value) {
  T before;
  __atomic_load(p, &before, __ATOMIC_RELAXED);
  for (;;) {
    T after = change_value(before);
    if (simt::here->fenced) {
      if (__atomic_compare_exchange(p, &before, &after, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        return before;
      }
    } else if (__atomic_compare_exchange(p, &before, &after, false, __ATOMIC_ACQUIRE,
                                         __ATOMIC_ACQUIRE)) {
      return before;
    }
  }
}

}  // namespace emulated

// ---- Memory

inline uint4 ld16(const void* p, Site at = Site::here()) {
  emulated::check_aligned<16>(p, "ld16: address is not aligned to 16 bytes", at);
  return std::bit_cast<uint4>(*static_cast<const emulated::Wide*>(p));
}
inline uint4 ld_stream16(const void* p, Site at = Site::here()) {
  emulated::check_aligned<16>(p, "ld_stream16: address is not aligned to 16 bytes", at);
  if (simt::in_shared(p, 16)) simt::misuse("ld_stream16: address is in shared memory", at);
  return std::bit_cast<uint4>(*static_cast<const emulated::Wide*>(p));
}
inline void st16(void* p, uint4 value, Site at = Site::here()) {
  emulated::check_aligned<16>(p, "st16: address is not aligned to 16 bytes", at);
  emulated::fill16(p, std::bit_cast<__uint128_t>(value));
}
inline uint2 ld8(const void* p, Site at = Site::here()) {
  emulated::check_aligned<8>(p, "ld8: address is not aligned to 8 bytes", at);
  return std::bit_cast<uint2>(*static_cast<const emulated::Half*>(p));
}
inline void st8(void* p, uint2 value, Site at = Site::here()) {
  emulated::check_aligned<8>(p, "st8: address is not aligned to 8 bytes", at);
  *static_cast<emulated::Half*>(p) = std::bit_cast<uint64_t>(value);
}

__forceinline__ void cp_async16(void* shared, const void* global, bool valid = true,
                                Site at = Site::here()) {
  emulated::check_aligned<16>(shared, "cp_async16: target is not aligned to 16 bytes", at);
  emulated::check_aligned<16>(global, "cp_async16: source is not aligned to 16 bytes", at);
  if (!simt::in_shared(shared, 16)) simt::misuse("cp_async16: target is not in shared memory", at);
  if (simt::in_shared(global, 1)) simt::misuse("cp_async16: source is in shared memory", at);
  simt::HeldCopy copy{shared, global, valid, at};
  if (simt::copies_are_late()) {
    emulated::poison16(shared);
  } else {
    emulated::do_copy(copy);
    copy.shared = nullptr;
  }
  simt::hold_copy(copy);
}
inline void cp_commit(Site at = Site::here()) { simt::commit_copies(at); }
template <int kPending>
__forceinline__ void cp_wait() {
  simt::HeldCopy copy;
  while (simt::take_copy(kPending, &copy)) emulated::do_copy(copy);
}

// ---- Matrices

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, Site at = Site::here()) {
  simt::load_matrices(r, 4, false, emulated::ldmatrix_row(row, true, at), at);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, Site at = Site::here()) {
  simt::load_matrices(r, 4, true, emulated::ldmatrix_row(row, true, at), at);
}
inline void ldmatrix_x2(uint32_t (&r)[2], const void* row, Site at = Site::here()) {
  const bool used = simt::here->thread % 32 < 16;
  simt::load_matrices(r, 2, false, emulated::ldmatrix_row(row, used, at), at);
}
inline void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          Site at = Site::here()) {
  simt::multiply_16816(d, a, b, false, at);
}
inline void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                           Site at = Site::here()) {
  simt::multiply_16816(d, a, b, true, at);
}

// ---- Barriers in shared memory and bulk copies

inline void mbar_init(uint64_t* bar, uint32_t arrivals, Site at = Site::here()) {
  emulated::check_bar(bar, at);
  constexpr uint32_t kArrivalsMax = (1u << 20) - 1;
  if (arrivals == 0 || arrivals > kArrivalsMax) simt::misuse("mbar_init: count out of range", at);
  simt::barrier_init(bar, arrivals, at);
  *bar = simt::kBarrierWord;
}
inline void mbar_fence_init(Site at = Site::here()) { simt::barrier_fence(at); }
inline void mbar_expect_tx(uint64_t* bar, uint32_t bytes, Site at = Site::here()) {
  emulated::check_live(bar, at);
  constexpr uint32_t kBytesMax = (1u << 20) - 1;
  if (bytes > kBytesMax) simt::misuse("mbar_expect_tx: more bytes than a barrier counts", at);
  simt::barrier_arrive(bar, bytes, at);
}
inline void mbar_arrive(uint64_t* bar, Site at = Site::here()) {
  emulated::check_live(bar, at);
  simt::barrier_arrive(bar, 0, at);
}
inline void mbar_invalidate(uint64_t* bar, Site at = Site::here()) {
  emulated::check_live(bar, at);
  simt::barrier_invalidate(bar, at);
  *bar = simt::kNoBarrierWord;
}
inline void mbar_wait(uint64_t* bar, uint32_t parity, Site at = Site::here()) {
  emulated::check_live(bar, at);
  simt::barrier_wait(bar, parity, at);
}
inline void bulk_to_shared(void* shared, const void* global, uint32_t bytes, uint64_t* bar,
                           Site at = Site::here()) {
  emulated::check_live(bar, at);
  emulated::check_aligned<16>(shared, "bulk_to_shared: target is not aligned to 16 bytes", at);
  emulated::check_aligned<16>(global, "bulk_to_shared: source is not aligned to 16 bytes", at);
  if (bytes == 0 || bytes % 16) simt::misuse("bulk_to_shared: bytes are not a multiple of 16", at);
  if (!simt::in_shared(shared, bytes)) {
    simt::misuse("bulk_to_shared: target is not in shared memory", at);
  }
  if (simt::copies_are_late()) {
    for (uint32_t i = 0; i < bytes; i += 16) emulated::poison16(static_cast<char*>(shared) + i);
  } else {
    emulated::move_bulk(shared, global, bytes);
  }
  simt::bulk_copy({shared, global, bytes, bar, &emulated::move_bulk, at});
}

// ---- Lanes and threads

template <class T>
inline T shfl_xor(uint32_t mask, T value, int lanes, Site at = Site::here()) {
  return std::bit_cast<T>(
      simt::shuffle(simt::Shuffle::kXor, mask, std::bit_cast<uint32_t>(value), lanes, at));
}
template <class T>
inline T shfl_down(uint32_t mask, T value, int delta, Site at = Site::here()) {
  return std::bit_cast<T>(
      simt::shuffle(simt::Shuffle::kDown, mask, std::bit_cast<uint32_t>(value), delta, at));
}
template <class T>
inline T shfl_idx(uint32_t mask, T value, int lane, Site at = Site::here()) {
  return std::bit_cast<T>(
      simt::shuffle(simt::Shuffle::kIdx, mask, std::bit_cast<uint32_t>(value), lane, at));
}
inline uint32_t ballot(uint32_t mask, bool p, Site at = Site::here()) {
  return simt::vote("ballot", mask, p, at);
}
inline bool any(uint32_t mask, bool p, Site at = Site::here()) {
  return simt::vote("any", mask, p, at) != 0;
}
inline bool all(uint32_t mask, bool p, Site at = Site::here()) {
  return simt::vote("all", mask, p, at) == mask;
}
inline void syncthreads(Site at = Site::here()) { simt::block_barrier(at); }
inline void syncwarp(uint32_t mask = kFullMask, Site at = Site::here()) {
  simt::warp_barrier(mask, at);
}

template <class T>
inline T atomic_add(T* p, T value) {
  return emulated::change(p, [&](T before) { return before + value; });
}
template <class T>
inline T atomic_max(T* p, T value) {
  return emulated::change(p, [&](T before) { return before < value ? value : before; });
}
template <class T>
inline T atomic_cas(T* p, T expected, T desired) {
  return emulated::change(p, [&](T before) { return before == expected ? desired : before; });
}
inline void thread_fence() { simt::here->fenced = true; }
inline void grid_dependency_wait(Site at = Site::here()) { simt::dependency_wait(at); }
inline void grid_dependency_trigger(Site at = Site::here()) { simt::dependency_trigger(at); }

}  // namespace headrace::cuda

#include "tests/simt/emulated/cuda_body/arithmetic.h"
#include "tests/simt/emulated/cuda_body/launch.h"

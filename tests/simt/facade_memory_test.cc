#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/every_order.h"
#include "tests/simt/sanitizers.h"

// The facade's loads, stores, copies and atomics against plain memory.
namespace headrace::cuda {
namespace {

using simt::in_every_order;
using simt::run_grid;
using simt::text;

constexpr unsigned kThreads = 64;

// `count` words of 16 bytes: 0, 1, 2, ... in 32-bit pieces.
std::vector<uint4> counting(size_t count) {
  std::vector<uint4> words(count);
  auto* pieces = reinterpret_cast<uint32_t*>(words.data());
  std::iota(pieces, pieces + count * 4, 0);
  return words;
}

bool same(const uint4& a, const uint4& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

__global__ void vectors(const uint4* in, uint4* out) {
  const unsigned i = threadIdx.x;
  st16(out + i, ld16(in + i));
  st16(out + kThreads + i, ld_stream16(in + i));
  const uint2* halves = reinterpret_cast<const uint2*>(in + i);
  uint2* swapped = reinterpret_cast<uint2*>(out + 2 * kThreads + i);
  st8(swapped, ld8(halves + 1));
  st8(swapped + 1, ld8(halves));
}

TEST_CASE("facade: vectors of 8 and 16 bytes") {
  in_every_order([] {
    const std::vector<uint4> in = counting(kThreads);
    std::vector<uint4> out(3 * kThreads);
    CHECK(text(run_grid(make_launch("vectors", 1, kThreads, 0, vectors, in.data(), out.data()))) ==
          "");
    for (unsigned i = 0; i < kThreads; ++i) {
      CHECK(same(out[i], in[i]));
      CHECK(same(out[kThreads + i], in[i]));
      CHECK(same(out[2 * kThreads + i], {in[i].z, in[i].w, in[i].x, in[i].y}));
    }
  });
}

constexpr unsigned kTiles = 4;

// Three stages, so that waits with 2, 1 and 0 groups left all matter. Odd threads' copies of odd
// tiles are not valid: zeros.
__global__ void copies(const uint4* in, uint4* out) {
  HEADRACE_SHARED(uint4, stages);
  const unsigned i = threadIdx.x;
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    if (tile < 3) {
      cp_async16(stages + tile * kThreads + i, in + tile * kThreads + i,
                 i % 2 == 0 || tile % 2 == 0);
    }
    cp_commit();
  }
  cp_wait<3>();
  out[i] = stages[i];
  cp_wait<2>();
  out[kThreads + i] = stages[kThreads + i];
  cp_wait<0>();
  out[2 * kThreads + i] = stages[2 * kThreads + i];
}

TEST_CASE("facade: cp.async, with zeros for what is not valid") {
  in_every_order([] {
    const std::vector<uint4> in = counting(3 * kThreads);
    std::vector<uint4> out(3 * kThreads);
    CHECK(text(run_grid(make_launch("copies", 1, kThreads, 3 * kThreads * sizeof(uint4), copies,
                                    in.data(), out.data()))) == "");
    for (unsigned i = 0; i < out.size(); ++i) {
      const bool valid = i % 2 == 0 || i / kThreads % 2 == 0;
      CHECK(same(out[i], valid ? in[i] : uint4{}));
    }
  });
}

__global__ void late(const uint4* in, uint4* out) {
  HEADRACE_SHARED(uint4, staged);
  cp_async16(staged, in);
  cp_commit();
  out[0] = *staged;
  cp_wait<0>();
  out[1] = *staged;
}

TEST_CASE("facade: a late copy is poison until it is waited for, an eager one is there") {
  if (simt::sanitizers::thread()) return;  // which calls this the race it is
  const std::vector<uint4> in = counting(2);
  for (const bool is_late : {true, false}) {
    simt::set_order({.late_copies = is_late});
    std::vector<uint4> out(2);
    CHECK(text(run_grid(make_launch("late", 1, 1, 16, late, in.data() + 1, out.data()))) == "");
    CHECK(same(out[0], is_late ? uint4{~0u, ~0u, ~0u, ~0u} : in[1]));
    CHECK(same(out[1], in[1]));
  }
  simt::set_order({});
}

struct Ring {
  alignas(16) uint4 stages[2][kThreads];
  uint64_t full[2];
  uint64_t empty;
};

// Two bulk copies to each barrier, two phases of each; then the barriers' memory is used anew.
__global__ void bulk(const uint4* in, uint4* out) {
  HEADRACE_SHARED(Ring, ring);
  constexpr uint32_t kHalfBytes = kThreads / 2 * sizeof(uint4);
  const unsigned i = threadIdx.x;
  if (i == 0) {
    for (uint64_t& bar : ring->full) mbar_init(&bar, 1);
    mbar_init(&ring->empty, kThreads);
    mbar_fence_init();
  }
  syncthreads();
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    const unsigned stage = tile % 2;
    if (i == 0) {
      if (tile > 0) mbar_wait(&ring->empty, (tile - 1) % 2);
      mbar_expect_tx(&ring->full[stage], 2 * kHalfBytes);
      for (unsigned half = 0; half < 2; ++half) {
        bulk_to_shared(&ring->stages[stage][half * kThreads / 2],
                       in + tile * kThreads + half * kThreads / 2, kHalfBytes, &ring->full[stage]);
      }
    }
    mbar_wait(&ring->full[stage], tile / 2 % 2);
    out[tile * kThreads + i] = ring->stages[stage][kThreads - 1 - i];
    mbar_arrive(&ring->empty);
  }
  syncthreads();
  if (i == 0) {
    mbar_invalidate(&ring->full[0]);
    mbar_init(&ring->full[0], kThreads);
  }
  syncthreads();
  mbar_arrive(&ring->full[0]);
  mbar_wait(&ring->full[0], 0);
}

TEST_CASE("facade: barriers in shared memory and bulk copies") {
  in_every_order([] {
    const std::vector<uint4> in = counting(kTiles * kThreads);
    std::vector<uint4> out(in.size());
    CHECK(text(run_grid(
              make_launch("bulk", 1, kThreads, sizeof(Ring), bulk, in.data(), out.data()))) == "");
    for (unsigned i = 0; i < out.size(); ++i) {
      CHECK(same(out[i], in[i / kThreads * kThreads + kThreads - 1 - i % kThreads]));
    }
  });
}

struct Totals {
  int sum = 0;
  uint32_t unsigned_sum = 0;
  unsigned long long wide_sum = 0;
  float float_sum = 0;
  int largest = -100;
  uint32_t unsigned_largest = 0;
  int claimed = -1;
  uint32_t claims = 0;
  unsigned long long wide = 5;
};

__global__ void atomics(Totals* totals, int* before) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  before[i] = atomic_add(&totals->sum, 1);
  atomic_add(&totals->unsigned_sum, 2u);
  atomic_add(&totals->wide_sum, 1ull << 33);
  atomic_add(&totals->float_sum, 0.5f);
  atomic_max(&totals->largest, -i - 1);
  atomic_max(&totals->unsigned_largest, static_cast<uint32_t>(i));
  if (atomic_cas(&totals->claimed, -1, i) == -1) atomic_add(&totals->claims, 1u);
  thread_fence();
  atomic_cas(&totals->wide, 5ull, 6ull);
}

TEST_CASE("facade: atomics give the value before") {
  in_every_order([] {
    constexpr int kAll = 3 * kThreads;
    Totals totals;
    std::vector<int> before(kAll);
    CHECK(text(run_grid(make_launch("atomics", 3, kThreads, 0, atomics, &totals, before.data()))) ==
          "");
    CHECK(totals.sum == kAll);
    CHECK(totals.unsigned_sum == 2 * kAll);
    CHECK(totals.wide_sum == (static_cast<unsigned long long>(kAll) << 33));
    CHECK(totals.float_sum == 0.5f * kAll);
    CHECK(totals.largest == -1);
    CHECK(totals.unsigned_largest == kAll - 1);
    CHECK(totals.claims == 1);
    CHECK(totals.claimed >= 0);
    CHECK(totals.wide == 6);
    std::sort(before.begin(), before.end());
    for (int i = 0; i < kAll; ++i) CHECK(before[static_cast<size_t>(i)] == i);
  });
}

}  // namespace
}  // namespace headrace::cuda

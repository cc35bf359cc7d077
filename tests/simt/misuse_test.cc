#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/every_order.h"

// Every misuse the emulator knows is reported, with kernel, block, thread and line.
namespace headrace::simt {
namespace {

using namespace headrace::cuda;

constexpr unsigned kThreads = 64;
constexpr size_t kSharedBytes = 1024;

// Global memory for whoever needs some; written by no kernel here.
alignas(16) uint4 g_memory[4] = {};

struct Shared {
  alignas(16) char bytes[kSharedBytes - 8];
  uint64_t bar;
};

struct TooLarge {
  Shared both[2];
};

struct Misuse {
  int line;  // of the mistake
  void (*kernel)(Shared* shared, char* global);
  const char* said;  // by the fault, in every order
};

__global__ void run(void (*kernel)(Shared*, char*), char* global) {
  HEADRACE_SHARED(Shared, shared);
  kernel(shared, global);
}

unsigned lane() { return threadIdx.x % 32; }

// A barrier that is ready for bulk copies, for kernels of one thread.
void prepare(Shared* shared, uint32_t arrivals) {
  mbar_init(&shared->bar, arrivals);
  mbar_fence_init();
}

std::string report(const Misuse& misuse, unsigned threads) {
  return text(run_grid(make_launch("wrong", 2, threads, kSharedBytes, run, misuse.kernel,
                                   reinterpret_cast<char*>(g_memory))));
}

void check(const std::vector<Misuse>& all, unsigned threads) {
  for (const Misuse& misuse : all) {
    in_every_order([&] {
      const std::string said = report(misuse, threads);
      const std::string line = "misuse_test.cc:" + std::to_string(misuse.line) + ": ";
      CAPTURE(said);
      CAPTURE(std::string(misuse.said));
      CHECK(said.starts_with("wrong, block "));
      CHECK(said.find(", thread ") != said.npos);
      CHECK(said.find(line) != said.npos);
      CHECK(said.find(misuse.said) != said.npos);
    });
  }
}

// A mistake and its line side by side.
// clang-format off
#define KERNEL(...) __LINE__, [](Shared* s, char* g) { (void)s; (void)g; __VA_ARGS__; }

TEST_CASE("misuse: addresses") {
  check({
    {KERNEL(ld16(g + 8)), "ld16: address is not aligned to 16"},
    {KERNEL(ld_stream16(g + 8)), "ld_stream16: address is not aligned"},
    {KERNEL(ld_stream16(s->bytes)), "ld_stream16: address is in shared memory"},
    {KERNEL(st16(s->bytes + 4, {})), "st16: address is not aligned to 16"},
    {KERNEL(ld8(g + 4)), "ld8: address is not aligned to 8"},
    {KERNEL(st8(s->bytes + 4, {})), "st8: address is not aligned to 8"},
    {KERNEL(cp_async16(s->bytes + 8, g)), "cp_async16: target is not aligned"},
    {KERNEL(cp_async16(s->bytes, g + 8)), "cp_async16: source is not aligned"},
    {KERNEL(cp_async16(g, g)), "cp_async16: target is not in shared memory"},
    {KERNEL(cp_async16(s + 1, g)), "cp_async16: target is not in shared memory"},
    {KERNEL(cp_async16(s->bytes, s->bytes + 16)), "cp_async16: source is in shared memory"},
    {KERNEL(uint32_t r[4]; ldmatrix_x4(r, s->bytes + 2)), "ldmatrix: row is not aligned"},
    {KERNEL(uint32_t r[4]; ldmatrix_x4_trans(r, g)), "ldmatrix: row is not in shared memory"},
    {KERNEL(HEADRACE_SHARED(TooLarge, large); (void)large), "fewer bytes of shared memory"},
  }, kThreads);
}

TEST_CASE("misuse: warps") {
  check({
    {KERNEL(syncwarp(1u << (lane() ^ 1))), "the calling lane is not in its own mask"},
    {KERNEL(if (lane() < 5) syncwarp()), "syncwarp (mask ffffffff)"},
    {KERNEL(if (lane() < 16) { ballot(kFullMask, true); } else { any(kFullMask, true); }), "divergent"},
    {KERNEL(if (lane() < 16) { ballot(0xffff, true); } else { ballot(kFullMask, true); }), "ballot"},
    {KERNEL(if (lane() == 0) { shfl_xor(kFullMask, 1, 1); } else { syncthreads(); }), "deadlock"},
  }, kThreads);
  check({
    {KERNEL(syncwarp()), "lanes that have returned or do not exist (alive 000000ff)"},
    {KERNEL(float d[4] = {}; uint32_t a[4] = {}, b[2] = {}; mma_f16_16816(d, a, b)), "mma (mask"},
  }, 8);
}

TEST_CASE("misuse: barriers") {
  check({
    {KERNEL(if (threadIdx.x < 40) syncthreads()), "return"},
  }, kThreads);
  check({
    {KERNEL(mbar_init(&s->bar, 0)), "mbar_init: count out of range"},
    {KERNEL(mbar_init(reinterpret_cast<uint64_t*>(g), 1)), "barrier is not in shared memory"},
    {KERNEL(mbar_init(reinterpret_cast<uint64_t*>(s->bytes + 4), 1)), "barrier is not aligned"},
    {KERNEL(mbar_arrive(&s->bar)), "not a barrier, or overwritten"},
    {KERNEL(prepare(s, 1); s->bar = 0; mbar_wait(&s->bar, 0)), "not a barrier, or overwritten"},
    {KERNEL(s->bar = kBarrierWord; mbar_arrive(&s->bar)), "no mbar_init of this barrier"},
    {KERNEL(mbar_init(&s->bar, 1); mbar_init(&s->bar, 1)), "mbar_init: barrier is in use"},
    {KERNEL(prepare(s, 2); mbar_arrive(&s->bar); mbar_invalidate(&s->bar)), "middle of a phase"},
    {KERNEL(prepare(s, 1); mbar_invalidate(&s->bar); mbar_arrive(&s->bar)), "not a barrier"},
    {KERNEL(prepare(s, 1); mbar_wait(&s->bar, 2)), "the parity is 0 or 1"},
    {KERNEL(prepare(s, 1); mbar_wait(&s->bar, 0)), "deadlock, no thread can run: 1 in mbar_wait"},
    {KERNEL(prepare(s, 1); mbar_expect_tx(&s->bar, 1 << 20)), "more bytes than a barrier counts"},
    {KERNEL(prepare(s, 1); mbar_expect_tx(&s->bar, 16); mbar_arrive(&s->bar)), "more arrivals"},
    {KERNEL(for (int i = 0; i < 65; ++i) mbar_init(&s->bar - i, 1)), "64 barriers (kBarriersMax)"},
  }, 1);
}

TEST_CASE("misuse: copies") {
  check({
    {KERNEL(cp_async16(s->bytes, g)), "returns with this copy not waited for"},
    {KERNEL(cp_async16(s->bytes, g); cp_wait<0>()), "returns with this copy not waited for"},
    {KERNEL(cp_async16(s->bytes, g); cp_commit(); cp_wait<1>()), "this copy not waited for"},
    {KERNEL(mbar_init(&s->bar, 1); bulk_to_shared(s->bytes, g, 16, &s->bar)), "mbar_fence_init"},
    {KERNEL(prepare(s, 1); bulk_to_shared(s->bytes + 8, g, 16, &s->bar)), "target is not aligned"},
    {KERNEL(prepare(s, 1); bulk_to_shared(s->bytes, g + 8, 16, &s->bar)), "source is not aligned"},
    {KERNEL(prepare(s, 1); bulk_to_shared(s->bytes, g, 24, &s->bar)), "not a multiple of 16"},
    {KERNEL(prepare(s, 1); bulk_to_shared(s->bytes, g, 0, &s->bar)), "not a multiple of 16"},
    {KERNEL(prepare(s, 1); bulk_to_shared(g, g, 16, &s->bar)), "target is not in shared memory"},
    {KERNEL(prepare(s, 1); mbar_expect_tx(&s->bar, 32); bulk_to_shared(s->bytes, g, 16, &s->bar); mbar_wait(&s->bar, 0)), "deadlock"},
  }, 1);
}
// clang-format on

TEST_CASE("misuse: the block ends with a bulk copy that nobody saw arrive") {
  const Misuse unseen{0,
                      [](Shared* shared, char* global) {
                        prepare(shared, 1);
                        mbar_expect_tx(&shared->bar, 16);
                        bulk_to_shared(shared->bytes, global, 16, &shared->bar);
                      },
                      ""};
  in_every_order([&] {
    CHECK(report(unseen, 1).find("ends with bulk copies to this barrier not waited for") !=
          std::string::npos);
  });
}

__global__ void branches() {
  if (threadIdx.x < 33) {
    syncthreads();
  } else {
    syncthreads();
  }
}

TEST_CASE("misuse: a report names block, thread and both lines; the grid stops there") {
  set_order({});
  const std::string said =
      text(run_grid(make_launch("branches", {2, 2, 1}, kThreads, 0, branches)));
  CHECK(said.starts_with("branches, block 0 (0,0,0), thread 33, misuse_test.cc:"));
  CHECK(said.find("divergent syncthreads: thread 0 waits in that of misuse_test.cc:") != said.npos);
}

TEST_CASE("misuse: after a fault the next launch is as any other") {
  const Misuse stuck{0,
                     [](Shared*, char*) {
                       if (lane() > 0) syncwarp();
                     },
                     ""};
  for (int i = 0; i < 3; ++i) {
    CHECK(report(stuck, kThreads) != "");
    const Misuse fine{0, [](Shared*, char*) { syncthreads(); }, ""};
    CHECK(report(fine, kThreads) == "");
  }
}

__global__ void lonely_wait() { grid_dependency_wait(); }
__global__ void no_wait() {}

TEST_CASE("misuse: a dependent launch that never waits for the one in front") {
  Launch pair[] = {make_launch("front", 1, 1, 0, lonely_wait),
                   make_launch("behind", 1, 1, 0, no_wait)};
  pair[1].dependent = true;
  CHECK(text(run_grids(pair)) ==
        "behind, block 0, thread 0: no thread of a dependent launch called grid_dependency_wait");
}

}  // namespace
}  // namespace headrace::simt

#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

// What the emulated facade body (emulated/cuda_body) asks of the emulator in the name of the thread
// that runs, and what access hooks may ask about it. Only valid inside a kernel, unless it says so.
// Misuse does not return: it ends the grid with a fault that names kernel, block, thread and line.

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace headrace::simt {

// A place in a kernel source. As a default argument, `= Site::here()` is the caller's line.
struct Site {
  const char* file = "";
  int line = 0;

  static constexpr Site here(const char* in = __builtin_FILE(), int at = __builtin_LINE()) {
    return {in, at};
  }
};

// The thread that runs now.
struct Here {
  const char* kernel = "";
  unsigned block = 0;   // linear
  unsigned thread = 0;  // linear; its lane is thread % 32
  char* shared = nullptr;
  size_t shared_bytes = 0;
  // A fence was passed: the thread's atomics publish what it wrote before.
  bool fenced = false;
};
extern Here* here;  // null outside of kernels

[[noreturn]] void misuse(const char* what, Site at);
bool in_shared(const void* memory, size_t bytes);
// Dynamic shared memory, which must hold `bytes`.
void* shared_memory(size_t bytes, Site at);

// Barriers and warp collectives. All lanes of `mask` meet in the same line.
void block_barrier(Site at);
void warp_barrier(uint32_t mask, Site at);
enum class Shuffle : uint8_t { kXor, kDown, kIdx };
// All ones (a NaN) where the lane named is not in `mask`.
uint32_t shuffle(Shuffle kind, uint32_t mask, uint32_t bits, int argument, Site at);
// Lanes of `mask` whose predicate holds; `name` is that of the wrapper.
uint32_t vote(const char* name, uint32_t mask, bool predicate, Site at);
// row: the 16 bytes at the lane's address (unused from lanes >= 8 count). count: 2 or 4.
void load_matrices(uint32_t* fragment, int count, bool transposed, uint4 row, Site at);
// d (4 floats) += a (4 registers) b (2 registers).
void multiply_16816(float* d, const uint32_t* a, const uint32_t* b, bool bf16, Site at);

// cp.async. The facade moves the bytes itself, so that they count as the thread's; here is when.
bool copies_are_late();
struct HeldCopy {
  void* shared = nullptr;  // null: was done when issued
  const void* global = nullptr;
  bool valid = true;
  Site at;
};
void hold_copy(const HeldCopy& copy);
void commit_copies(Site at);
// The next copy that must be done before at most `pending` groups are left; false: none.
bool take_copy(int pending, HeldCopy* copy);

// Barriers in shared memory. The facade keeps kBarrierWord in the barrier's word.
constexpr uint64_t kBarrierWord = 0x6d62617272696572;
constexpr uint64_t kNoBarrierWord = ~uint64_t{0};
void barrier_init(uint64_t* bar, uint32_t arrivals, Site at);
void barrier_fence(Site at);
void barrier_invalidate(uint64_t* bar, Site at);
void barrier_arrive(uint64_t* bar, uint32_t bytes, Site at);
void barrier_wait(uint64_t* bar, uint32_t parity, Site at);
struct BulkCopy {
  void* shared = nullptr;
  const void* global = nullptr;
  uint32_t bytes = 0;
  uint64_t* bar = nullptr;
  void (*move)(void*, const void*, uint32_t) = nullptr;  // instrumented as the kernel is
  Site at;
};
// Late: kept until nothing else can run. Else only counted: the facade has moved the bytes.
void bulk_copy(const BulkCopy& copy);

void dependency_wait(Site at);
void dependency_trigger(Site at);

}  // namespace headrace::simt

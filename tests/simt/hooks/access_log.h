#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// What kernels touch, access by access. Kernels are compiled as for the thread sanitizer, whose
// calls end here instead (access_log.cc). A warp's access is what its lanes do in one instruction
// for the n-th time each.

namespace headrace::simt {

// One source line's accesses of one kind.
struct LineUse {
  std::string line;  // "copy.cu:23"
  bool shared = false;
  bool write = false;
  uint64_t accesses = 0;  // of warps
  uint64_t bytes = 0;     // asked for, all lanes
  // Global: 32-byte sectors that move. Shared: passes over the banks, where each of 32 banks gives
  // one 4-byte word a pass; 8 and 16 bytes a lane go in two and four parts of the warp.
  uint64_t units = 0;
  uint64_t least = 0;  // units that as many distinct bytes need at least
};

// What one kind of access moves. A byte that several lanes of a warp ask for at once is one byte.
struct Traffic {
  uint64_t bytes = 0;             // of all the warps' accesses: again each time
  uint64_t distinct_bytes = 0;    // each once, however often it is asked for
  uint64_t distinct_sectors = 0;  // of 32 bytes, alike
};

// One allocation's accesses.
struct BufferUse {
  uintptr_t base = 0;
  size_t size = 0;
  Traffic read;
  Traffic written;
};

struct Accesses {
  std::vector<LineUse> lines;
  std::vector<BufferUse> buffers;  // those touched, by address
  // Distinct bytes of device memory: each crosses the memory bus once when caches are perfect.
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;

  // Of the allocation that holds the address; of nothing where that was not touched.
  BufferUse of(const void* address) const;
};

// Runs launches, waits included, and says what they touched. Memory they use outlives the call.
Accesses record(const std::function<void()>& run);

}  // namespace headrace::simt

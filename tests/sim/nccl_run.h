#pragma once

#include <cstdint>
#include <string>

namespace headrace::sim {

// What one seed came to. Any seed: workers hand KV to each other over lanes of a fake NCCL for some
// seconds while things go wrong, then in peace; equal seeds give equal runs.
struct NcclRun {
  std::string wrong;  // empty: nothing was
  std::string trace;  // the newest lines, if something was
  uint64_t hand_offs = 0;
  uint64_t over_nccl = 0;
  uint64_t failed = 0;  // attempts
  uint64_t broken = 0;  // communicators
  uint64_t aborts_hung = 0;
  uint64_t lies = 0;
  uint64_t moved = 0;  // slots
  double seconds = 0;  // simulated
};
NcclRun run_nccl(uint64_t seed);

// Seeds from `first` on until one goes wrong: what, and its seed. For the table of mistakes.
std::string hunt_nccl(uint64_t first, uint64_t count);

}  // namespace headrace::sim

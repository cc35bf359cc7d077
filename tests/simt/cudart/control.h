#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What only the stand-in has. Tests that include this do not link against the real libcudart.
namespace headrace::simt {

enum class Streams {
  kEager,     // an operation runs as soon as what is in front of it has run
  kLazy,      // an operation runs only when someone waits for it: a missing wait shows
  kThreaded,  // a device thread runs them; needed where two processes must both make progress
};

// Forgets everything: memory, streams, events, errors, injections, reports. Handles and pointers
// from before are dead. Mode and devices come from HEADRACE_SIMT_STREAMS (eager, lazy, threaded;
// lazy without it), HEADRACE_SIMT_DEVICES (1) and HEADRACE_SIMT_MEMORY (bytes a device, 1 GiB).
void reset();
void reset(Streams mode, int devices = 1);

void set_memory(int device, size_t bytes);  // what cudaMemGetInfo calls total; at most 8 GiB
void set_capability(int major, int minor);  // of all devices; 9.0 after a reset
void set_graph_order(bool reverse);         // of nodes that are ready; reverse after a reset
void set_host_guard(bool on);               // device memory faults on the host; on after a reset

// The host guard needs memory protection keys in mode kThreaded. Elsewhere page rights do.
bool host_guard_works(Streams mode);

// The countdown-th from now (1: the next) fails; 0 takes it back.
void fail_allocation(int countdown);  // cudaErrorMemoryAllocation
void fail_launch(int countdown);      // when it runs: cudaErrorLaunchFailure, which stays

// From now on the device answers everything with this error and runs nothing.
void lose_device(int device, cudaError_t error = cudaErrorUnknown);
// A held device runs nothing, and says nothing: as a kernel that never ends.
void hold_device(int device, bool held);

enum class Memory { kNone, kDevice, kPinned };
struct Range {
  Memory memory = Memory::kNone;
  int device = 0;
  uintptr_t base = 0;
  size_t bytes = 0;
};
// The allocation that holds the address, for checkers; kNone for all else. From any thread.
Range find_range(const void* address);

// What is alive: "device 0: 4096 bytes", "stream", ...
std::vector<std::string> leaks();
// Why calls were refused and operations failed, oldest first; forgets them.
std::vector<std::string> take_reports();

}  // namespace headrace::simt

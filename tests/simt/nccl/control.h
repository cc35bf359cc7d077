#pragma once

#include <cstddef>

// What only the stand-in of NCCL has. A process that cannot call these is told by the environment:
// HEADRACE_SIMT_NCCL="stall_init stall_send stall_abort silent concurrent version=N die_after=N".
namespace headrace::simt::nccl {

struct Behaviour {
  bool stall_init = false;   // a rank that never comes: no call of it makes progress
  bool stall_send = false;   // sends do not move; also those under way
  bool stall_abort = false;  // ncclCommAbort returns only when this is false again
  bool silent = false;       // a peer's death is not an error: nothing moves, for ever
  bool concurrent = false;   // else one device runs its groups one by one, in the order of their
                             // calls: the narrowest device that NCCL's rules allow for
  int version = 0;           // told to others and by ncclGetVersion; 0: the header's
  size_t die_after = 0;      // sent bytes until the process ends at once; 0: never
};

Behaviour behaviour();
void set_behaviour(const Behaviour&);

size_t communicators();  // neither destroyed nor aborted
size_t unused_ids();     // made here and not used here; each costs the real one a thread

}  // namespace headrace::simt::nccl

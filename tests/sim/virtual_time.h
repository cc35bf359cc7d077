#pragma once

#include "protocol/slowdown.h"
#include "worker/handoff_options.h"

namespace headrace::sim {

// The waits as they are in a build without sanitizers: those do not slow a virtual clock down.
inline worker::HandoffOptions on_virtual_time(worker::HandoffOptions o = {}) {
  for (Duration* wait : {&o.hello, &o.silence, &o.verdict}) *wait /= kSlowdown;
  return o;
}

}  // namespace headrace::sim

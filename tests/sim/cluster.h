#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/router.h"
#include "tests/sim/sim_engine.h"

namespace headrace::sim {

// A whole cluster in one thread: the real coordinator, real workers, clients, and a script of
// misfortunes drawn from the seed.
struct ClusterOptions {
  uint64_t seed = 1;
  uint32_t prefill = 2;
  uint32_t decode = 2;
  uint32_t both = 0;
  uint32_t requests = 12;
  uint32_t crashes_max = 3;    // each seed draws how many; the process starts again a little later
  uint32_t cuts_max = 2;       // all connections of a worker break, both sides live on
  uint32_t abandons_max = 2;   // clients that leave
  uint32_t flip_one_in = 0;    // of the frames on KV channels one bit flips in one of so many
  uint32_t spike_one_in = 40;  // frames that take up to 200 ms
  uint32_t tokens_max = 250;   // of an answer
  coordinator::PdMode pd = coordinator::PdMode::kAlways;
  SimEngineOptions engine{.blocks = 96};
};

struct ClusterReport {
  std::vector<std::string> problems;  // what must not be; empty: all is well
  std::string trace;
  uint64_t trace_hash = 0;
  uint32_t complete = 0;                   // answers that equal the undisturbed run
  uint32_t cancelled = 0;                  // by their client
  uint32_t failed = 0;                     // with a stated error
  std::map<std::string, uint32_t> errors;  // stated errors, how often each
  uint32_t remote = 0;                     // whose KV was handed over
  uint32_t crashes = 0;
  uint32_t cuts = 0;
  uint64_t flips = 0;
  uint64_t preempted = 0;
  uint64_t failed_attempts = 0;
  double seconds = 0;  // virtual, until the last end
};

ClusterReport run_cluster(const ClusterOptions& options);

}  // namespace headrace::sim

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/router.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/states.h"

namespace headrace::sim {

// Something happens to a worker as soon as an attempt there has come into `state` for the nth time.
struct Ambush {
  State state{};
  Fault fault{};
  uint32_t nth = 1;
  bool peer = false;  // it happens to the other worker of the attempt
};

// A whole cluster in one thread: the real coordinator, real workers, clients, and a script of
// misfortunes drawn from the seed. First misfortunes come, for `faults_for`; then none, and
// everything has to end.
struct ClusterOptions {
  uint64_t seed = 1;
  uint32_t prefill = 2;
  uint32_t decode = 2;
  uint32_t both = 0;
  coordinator::PdMode pd = coordinator::PdMode::kAlways;
  SimEngineOptions engine{.blocks = 96};
  uint32_t kv_streams = 1;
  bool lanes = false;            // staged blocks go by NCCL where they can
  uint32_t nccl_faults_max = 0;  // a device's moves hang, fail or get lost, for up to 3 s
  bool salted = false;           // each life of a worker chooses tokens of its own

  uint32_t requests = 12;
  uint32_t tokens_max = 250;     // of an answer
  Duration deadline_min = 20s;   // of a request; up to three times as much
  uint32_t prefixes = 0;         // prompts begin with one of so many; 0: each as it likes
  uint32_t abandons_max = 2;     // clients that leave
  uint32_t slow_one_in = 0;      // of the clients: takes tokens late
  uint32_t resuming_one_in = 0;  // goes away and comes back

  // Each seed draws how many of each.
  uint32_t crashes_max = 3;  // the process starts again a little later
  uint32_t cuts_max = 2;     // all connections of a worker break, both sides live on
  uint32_t holds_max = 0;    // nothing gets through from one process to another for up to 3 s
  uint32_t freezes_max = 0;  // a process stands still for up to 4 s, the coordinator too
  uint32_t slows_max = 0;    // a process is up to 50 times slower
  uint32_t drains_max = 0;   // a worker drains and starts again
  std::vector<Ambush> ambushes;
  Weather mesh{.spike_one_in = 40};
  Weather kv{.spike_one_in = 40};
  uint32_t late_timer_one_in = 0;
  Duration faults_for = 2500ms;
  Duration settle = 20s;  // everything ends so long after the last misfortune

  bool trace = false;
  std::function<void(const std::string&)> on_problem{};  // told at once
};

struct ClusterReport {
  std::vector<std::string> problems;  // what must not be; empty: all is well
  std::string trace;
  uint64_t trace_hash = 0;
  Coverage coverage;
  std::map<std::string, uint64_t> counts;  // "complete", "crashes", "frames lost", ...
  std::map<std::string, uint64_t> errors;  // stated errors, how often each
  double seconds = 0;                      // virtual
  double settled = 0;                      // from the last misfortune to the last end
  uint64_t events = 0;
  uint64_t count(const std::string& what) const {
    const auto it = counts.find(what);
    return it == counts.end() ? 0 : it->second;
  }
};

ClusterReport run_cluster(const ClusterOptions& options);

}  // namespace headrace::sim

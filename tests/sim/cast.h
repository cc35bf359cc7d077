#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/coordinator_node.h"
#include "tests/sim/cluster.h"
#include "tests/sim/nccl_fabric.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_lanes.h"
#include "tests/sim/worker_rig.h"

namespace headrace::sim {

constexpr Token kEndToken = 0;  // ends an answer, about one in a thousand

// One place for a worker; processes come and go on it.
struct Slot {
  std::string name;
  Role role{};
  SimWorker worker;
  std::shared_ptr<std::weak_ptr<SimLanes>> lanes;  // of its worker, once they are made
  bool up() const { return worker.node != nullptr; }
};

// All who take part in one run.
struct Cast {
  explicit Cast(const ClusterOptions& o)
      : options(o), world({.seed = o.seed, .trace_max = o.trace ? size_t{20000} : size_t{0}}) {}

  uint64_t draw(uint64_t n) { return n == 0 ? 0 : world.random().next() % n; }
  Duration draw_time(Duration most) { return world.draw(Duration{0}, most); }
  void problem(const std::string& what) {
    auto& all = report.problems;
    if (all.size() < 20 && std::find(all.begin(), all.end(), what) == all.end())
      all.push_back(what);
    world.note("VIOLATION: " + what);
    if (options.on_problem) options.on_problem(what);
  }
  void count(const std::string& what, uint64_t n = 1) { report.counts[what] += n; }
  Slot* slot(const std::string& name) {
    for (Slot& s : slots)
      if (s.name == name) return &s;
    return nullptr;
  }
  bool all_ended() const {
    for (const auto& c : clients)
      if (!c->over()) return false;
    return true;
  }
  // The states in which attempts stand that a misfortune of this process concerns.
  StateSet states_at(const std::string& process) const;

  ClusterOptions options;
  ClusterReport report;
  SimWorld world;
  std::shared_ptr<NcclFabric> nccl = std::make_shared<NcclFabric>(world);
  SimProcess* coordinator_process = nullptr;
  // When the coordinator was frozen: begin and end, in order.
  std::vector<std::pair<Instant, Instant>> coordinator_freezes;
  std::shared_ptr<coordinator::CoordinatorNode> coordinator;
  std::vector<Slot> slots;
  std::vector<SimWorker> lives;        // every process there ever was
  std::map<WorkerId, uint64_t> salts;  // of the engines, by the coordinator's numbers
  std::vector<std::shared_ptr<SimClient>> clients;
};

// The trace's words for a frame.
std::string describe_frame(const std::string& host, bool to_coordinator, const Bytes& frame);

}  // namespace headrace::sim

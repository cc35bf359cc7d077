#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace headrace::sim {

// Many seeds, and what came of them together.
struct Campaign {
  struct Failure {
    uint64_t seed = 0;
    std::vector<std::string> problems;
  };
  uint64_t seeds = 0;
  std::vector<Failure> failures;  // at most kFailuresMax are looked for
  Coverage coverage;
  std::map<std::string, uint64_t> counts;
  std::map<std::string, uint64_t> errors;
  double seconds = 0;      // virtual
  double settled_max = 0;  // the longest from the last misfortune to the last end
  uint64_t events = 0;

  static constexpr size_t kFailuresMax = 5;
  uint64_t count(const std::string& what) const {
    const auto it = counts.find(what);
    return it == counts.end() ? 0 : it->second;
  }
  void add(uint64_t seed, ClusterReport report);
  std::string summary() const;  // one paragraph
};

// Runs seeds [from, from + seeds). With several jobs, each is a process of its own with an equal
// share; one that dies is a failure of the seed it was at.
Campaign run_campaign(uint64_t from, uint64_t seeds, unsigned jobs);

}  // namespace headrace::sim

#pragma once

#include <deque>
#include <map>
#include <string>

#include "coordinator/cluster_status.h"

namespace headrace::coordinator {

// Where a Prometheus finds a cluster, as its HTTP service discovery wants it: the coordinator and
// all workers that show metrics. One that was lost stays for a while, since what is no target any
// more is never seen to be down: for kLostFor, or until another comes with its address or name (it
// was replaced), and at most kLostMax of them, the latest. A plain value.
class ScrapeTargets {
 public:
  static constexpr Duration kLostFor = std::chrono::minutes(10);
  static constexpr size_t kLostMax = 32;

  // Who is there now; also forgets those lost long ago.
  void status(const ClusterStatus& status, Instant now);
  // One of the last status was lost. Not for workers that left as they were asked to.
  void lost(WorkerId worker, Instant now);

  std::string json() const;

 private:
  struct Target {
    Endpoint at;
    std::string name;
    Instant lost{};
  };
  void replaced(const Target& by);

  Endpoint coordinator_;
  std::map<WorkerId, Target> present_;
  std::deque<Target> lost_;  // the latest last
};

}  // namespace headrace::coordinator

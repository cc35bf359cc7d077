#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "coordinator/limits.h"
#include "protocol/ids.h"

namespace headrace::coordinator {

using WorkerPair = std::pair<WorkerId, WorkerId>;  // prefill, decode

// Which pairs of workers have lately failed to hand KV over: a cut between them is seen by nobody
// else. A pair is left alone for kPairBackoffMin, twice as long each time, until a hand-off works.
class PairHealth {
 public:
  void failed(WorkerPair pair, Instant now);
  void worked(WorkerPair pair) { pairs_.erase(pair); }
  void forget(WorkerId worker);
  // Those to be left alone now.
  std::vector<WorkerPair> sick(Instant now) const;
  size_t size() const { return pairs_.size(); }

 private:
  struct Trouble {
    Instant until{};
    Duration backoff{};
  };
  std::map<WorkerPair, Trouble> pairs_;  // at most kPairsMax
};

}  // namespace headrace::coordinator

#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "coordinator/pair_health.h"

namespace headrace::coordinator {

// How fast KV goes from one worker to another, learned from hand-offs that worked: nobody else
// knows what lies between two workers. One that looks twice as fast as what was known replaces it,
// since none can look faster than the link is; else each counts by its bytes, the newer the more.
// A pair that looks slow is not used, and a single hand-off may have been late for the machine
// alone. So nothing is believed before kLinkRateTimes of them, and one that looks less than half as
// fast as what was known only together with the next one that does; but one of kLinkRateWire at
// once.
//
// A pair that looks slow, for its link or for its prefill worker, would never be used again, and so
// nobody would see that it has become fast. Therefore all requests together put aside a part of
// their time to the first token, 1 / kLinkTrials, and that pays for trials of pairs that were not
// used for kLinkRateFresh: what a trial is predicted to cost is never more than what is there.
class LinkRates {
 public:
  // `wire`: in which the bytes came. Too few bytes, or a time that cannot be, tell nothing.
  void learn(WorkerPair pair, uint64_t bytes, Duration wire, Instant now);
  // A request is given to workers; its first token is predicted after so long.
  void served(Duration first_token);
  // A hand-off begins. `extra`: by so much the first token is predicted to be later for it.
  void handed(WorkerPair pair, Duration extra, Instant now);
  void forget(WorkerId worker);

  // Predicted; none: nothing is known of the link.
  std::optional<Duration> transfer(WorkerPair pair, uint64_t bytes) const;
  // What a hand-off of so many bytes may cost now, as a trial.
  Duration credit(WorkerPair pair, uint64_t bytes, Instant now) const;
  size_t size() const { return pairs_.size(); }

 private:
  struct Learned {
    double bytes = 0;
    double seconds = 0;
    uint32_t times = 0;  // that told something, up to kLinkRateTimes
    Duration wire{};     // of them, up to kLinkRateWire
    bool doubt = false;  // the last one looked slow, and does not count yet
    bool known() const { return times >= kLinkRateTimes || wire >= kLinkRateWire; }
    Instant used{};
  };
  Learned& at(WorkerPair pair);

  std::map<WorkerPair, Learned> pairs_;  // at most kPairsMax
  Duration spare_{};                     // put aside; at most kLinkTrialMax
};

}  // namespace headrace::coordinator

#include "coordinator/pair_health.h"

#include <algorithm>

namespace headrace::coordinator {

void PairHealth::failed(WorkerPair pair, Instant now) {
  if (!pairs_.contains(pair) && pairs_.size() >= kPairsMax)
    pairs_.erase(std::min_element(pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) {
      return a.second.until < b.second.until;
    }));
  Trouble& trouble = pairs_[pair];
  trouble.backoff = std::clamp<Duration>(trouble.backoff * 2, kPairBackoffMin, kPairBackoffMax);
  trouble.until = now + trouble.backoff;
}

void PairHealth::forget(WorkerId worker) {
  std::erase_if(pairs_,
                [&](const auto& p) { return p.first.first == worker || p.first.second == worker; });
}

std::vector<WorkerPair> PairHealth::sick(Instant now) const {
  std::vector<WorkerPair> out;
  for (const auto& [pair, trouble] : pairs_)
    if (now < trouble.until) out.push_back(pair);
  return out;
}

}  // namespace headrace::coordinator

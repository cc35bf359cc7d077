#include "coordinator/link_rates.h"

#include <algorithm>
#include <utility>

namespace headrace::coordinator {

namespace {
using Seconds = std::chrono::duration<double>;
}

LinkRates::Learned& LinkRates::at(WorkerPair pair) {
  if (!pairs_.contains(pair) && pairs_.size() >= kPairsMax)
    pairs_.erase(std::min_element(pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  return pairs_[pair];
}

void LinkRates::learn(WorkerPair pair, uint64_t bytes, Duration wire, Instant now) {
  if (bytes < kLinkRateBytes || wire <= Duration{0} || wire > kLinkWireMax) return;
  Learned& learned = at(pair);
  learned.used = now;
  const bool slow =
      learned.bytes > 0 && wire < kLinkRateWire &&
      2 * static_cast<double>(bytes) * learned.seconds < learned.bytes * Seconds(wire).count();
  if (std::exchange(learned.doubt, slow) != slow && slow) return;
  learned.times = std::min(learned.times + 1, kLinkRateTimes);
  learned.wire = std::min(learned.wire + std::min(wire, kLinkRateWire), kLinkRateWire);
  const double size = static_cast<double>(bytes);
  const double seconds = Seconds(wire).count();
  if (size * learned.seconds > 2 * learned.bytes * seconds) learned.bytes = learned.seconds = 0;
  // A small one makes little of what was known forgotten.
  const double kept = learned.bytes > 0 ? 1 - std::min(1.0, size / learned.bytes) / 2 : 0;
  learned.bytes = learned.bytes * kept + size;
  learned.seconds = learned.seconds * kept + seconds;
}

void LinkRates::served(Duration first_token) {
  spare_ = std::min(spare_ + std::clamp(first_token, Duration{0}, kTransferMax) / kLinkTrials,
                    kLinkTrialMax);
}

void LinkRates::handed(WorkerPair pair, Duration extra, Instant now) {
  at(pair).used = now;
  spare_ -= std::clamp(extra, Duration{0}, spare_);
}

void LinkRates::forget(WorkerId worker) {
  std::erase_if(pairs_,
                [&](const auto& p) { return p.first.first == worker || p.first.second == worker; });
}

std::optional<Duration> LinkRates::transfer(WorkerPair pair, uint64_t bytes) const {
  const auto it = pairs_.find(pair);
  if (it == pairs_.end() || !it->second.known()) return {};
  const Seconds time(static_cast<double>(bytes) * it->second.seconds / it->second.bytes);
  return time < Seconds(kTransferMax) ? std::chrono::duration_cast<Duration>(time) : kTransferMax;
}

Duration LinkRates::credit(WorkerPair pair, uint64_t bytes, Instant now) const {
  const auto it = pairs_.find(pair);
  if (it == pairs_.end() || now - it->second.used < kLinkRateFresh) return Duration{0};
  const bool tells = bytes >= kLinkRateBytes || !it->second.known();
  return tells ? spare_ : Duration{0};
}

}  // namespace headrace::coordinator

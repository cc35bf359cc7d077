#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_set>

#include "protocol/messages.h"

namespace headrace::coordinator {

// What each worker's prefix cache holds, as told by its beats: hints for the router, never proof.
// Plain data; a worker's set is bounded by its number of blocks and by kBlocksMax.
class PrefixIndex {
 public:
  static constexpr size_t kBlocksMax = size_t{1} << 20;  // of one worker

  // A worker joins with so many KV blocks and an empty cache.
  void join(WorkerId worker, uint32_t blocks);
  void forget(WorkerId worker);

  // Takes the events of a beat, the first of which has the number `from`. Those taken before are
  // skipped. False: events are missing in between; nothing changes unless a kReset among them makes
  // the missing ones irrelevant.
  bool take(WorkerId worker, uint64_t from, std::span<const PrefixEvent> events);
  // How many events were taken so far: the worker is asked to go on behind them.
  uint64_t seen(WorkerId worker) const;
  // How many of the first blocks of a prompt this worker has. `chain`: PrefixHash::brief of each.
  uint32_t match(WorkerId worker, std::span<const uint64_t> chain) const;
  size_t blocks(WorkerId worker) const;

 private:
  struct Cache {
    size_t most = 0;
    uint64_t seen = 0;
    std::unordered_set<uint64_t> hashes;
  };
  std::map<WorkerId, Cache> caches_;
};

}  // namespace headrace::coordinator

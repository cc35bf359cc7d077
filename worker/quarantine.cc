#include "worker/quarantine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {

void Quarantine::add(TransferId transfer, std::vector<BlockRef> blocks, Instant now) {
  if (blocks.empty()) return;
  CHECK(!kept_.count(transfer));
  pool_.change(blocks, Hold::kIncoming, Hold::kQuarantined);
  blocks_ += static_cast<uint32_t>(blocks.size());
  kept_.emplace(transfer, Kept{std::move(blocks), now});
}

uint32_t Quarantine::stopped(TransferId transfer) {
  const auto it = kept_.find(transfer);
  if (it == kept_.end()) return 0;
  blocks_ -= static_cast<uint32_t>(it->second.blocks.size());
  const uint32_t freed = pool_.release(it->second.blocks, Hold::kQuarantined);
  kept_.erase(it);
  return freed;
}

Status Quarantine::health(Instant now) const {
  const uint32_t most = std::max(1u, pool_.total() / kOneBlockIn);
  if (blocks_ > most) {
    return error(Errc::kUnavailable, std::to_string(blocks_) + " KV blocks are in quarantine, " +
                                         std::to_string(most) + " are the limit");
  }
  if (kept_.size() > kTransfers) {
    return error(Errc::kUnavailable, std::to_string(kept_.size()) +
                                         " transfers are in quarantine, " +
                                         std::to_string(kTransfers) + " are the limit");
  }
  for (const auto& [transfer, kept] : kept_) {
    if (now - kept.since >= kAge) {
      return error(Errc::kUnavailable, "KV blocks are in quarantine for " +
                                           std::to_string(kAge / 1s) + " s, the limit");
    }
  }
  return {};
}

}  // namespace headrace::worker

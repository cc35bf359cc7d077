#include "coordinator/prefix_index.h"

#include <algorithm>

namespace headrace::coordinator {

void PrefixIndex::join(WorkerId worker, uint32_t blocks) {
  Cache cache;
  cache.most = std::min<size_t>(blocks, kBlocksMax);
  caches_.insert_or_assign(worker, std::move(cache));
}

void PrefixIndex::forget(WorkerId worker) { caches_.erase(worker); }

bool PrefixIndex::take(WorkerId worker, uint64_t from, std::span<const PrefixEvent> events) {
  const auto it = caches_.find(worker);
  if (it == caches_.end() || events.empty()) return true;
  Cache& cache = it->second;
  if (from > UINT64_MAX - events.size()) return false;  // no worker counts that far
  const uint64_t until = from + events.size();
  if (until <= cache.seen) return true;
  size_t first = 0;
  if (from <= cache.seen) {
    first = static_cast<size_t>(cache.seen - from);
  } else {
    const auto reset = std::find_if(events.rbegin(), events.rend(), [](const PrefixEvent& e) {
      return e.kind == PrefixEvent::Kind::kReset;
    });
    if (reset == events.rend()) return false;
    first = static_cast<size_t>(events.rend() - reset) - 1;
  }
  for (const PrefixEvent& event : events.subspan(first)) {
    if (event.kind == PrefixEvent::Kind::kReset)
      cache.hashes.clear();
    else if (event.kind == PrefixEvent::Kind::kEvicted)
      cache.hashes.erase(event.hash);
    else if (cache.hashes.size() < cache.most)
      cache.hashes.insert(event.hash);
  }
  cache.seen = until;
  return true;
}

uint64_t PrefixIndex::seen(WorkerId worker) const {
  const auto it = caches_.find(worker);
  return it == caches_.end() ? 0 : it->second.seen;
}

uint32_t PrefixIndex::match(WorkerId worker, std::span<const uint64_t> chain) const {
  const auto it = caches_.find(worker);
  if (it == caches_.end()) return 0;
  uint32_t found = 0;
  while (found < chain.size() && it->second.hashes.contains(chain[found])) ++found;
  return found;
}

size_t PrefixIndex::blocks(WorkerId worker) const {
  const auto it = caches_.find(worker);
  return it == caches_.end() ? 0 : it->second.hashes.size();
}

}  // namespace headrace::coordinator

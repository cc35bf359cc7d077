#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "worker/worker.h"

// What sequences take from the prefix cache and leave there, and how they give up their blocks.

namespace headrace::worker {

// What of a waiting sequence is cached now. The last token is always computed where one is sampled
// after it; who only prefills may find everything.
void Worker::match_hits(Sequence& s) {
  if (!options_.prefix_cache) return;
  const auto length = static_cast<uint32_t>(s.tokens.size());
  cache_.match(s.prefix, s.tokens, s.prefill_only ? length : length - 1);
}

// The first blocks of a sequence that begins: the hits as of the last match_hits().
void Worker::acquire_hits(Sequence& s) {
  CHECK(s.blocks.empty() && s.computed == 0);
  s.began = strand_->now();
  if (options_.prefix_cache) s.blocks = cache_.acquire(s.prefix);
  s.computed = static_cast<uint32_t>(s.blocks.size()) * engine_.card().block_tokens;
  if (std::exchange(s.admitted, true)) return;
  s.cached_tokens = s.computed;
  probes_->prefix(static_cast<uint32_t>(s.tokens.size()), s.cached_tokens);
}

// Its full blocks are found by others from now on. All of them are actively held. A step that runs
// reads them by the names it was given: until it is over none is exchanged.
void Worker::leave_in_cache(Sequence& s) {
  if (!options_.prefix_cache) return;
  CHECK(s.active_blocks >= s.blocks.size());
  s.exchange_due = !cache_.add(s.prefix, s.tokens, s.computed, s.blocks, s.in_step == 0);
}

// How many of its blocks others hold too. Whoever holds one of the cache's holds those before it:
// they are the first.
uint32_t Worker::shared_blocks(const Sequence& s) const {
  const auto first_own = std::partition_point(s.blocks.begin(), s.blocks.end(),
                                              [&](BlockRef ref) { return pool_.holders(ref) > 1; });
  return static_cast<uint32_t>(first_own - s.blocks.begin());
}

// Returns how many nobody holds now.
uint32_t Worker::free_blocks(Sequence& s) {
  const std::span<const BlockRef> all(s.blocks);
  const size_t active = std::min<size_t>(s.active_blocks, all.size());
  if (s.rest == Hold::kIncoming && planted(Mistake::kBlocksKept)) return 0;
  uint32_t freed = pool_.release(all.subspan(active), s.rest);
  freed += pool_.release(all.first(active), Hold::kActive);
  s.blocks.clear();
  s.active_blocks = Sequence::kAll;
  s.rest = Hold::kActive;
  s.prefix.added = 0;
  return freed;
}

// Its reader could not be stopped: what that may still write into is nobody's until it has.
void Worker::quarantine(Sequence& s) {
  if (s.rest != Hold::kIncoming) return;
  const auto first = s.blocks.begin() + s.active_blocks;
  quarantine_.add(s.transfer, {first, s.blocks.end()}, strand_->now());
  s.blocks.erase(first, s.blocks.end());
}

}  // namespace headrace::worker

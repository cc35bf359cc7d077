#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "protocol/messages.h"
#include "protocol/prefix_hash.h"
#include "worker/block_pool.h"
#include "worker/prefix_log.h"

namespace headrace::worker {

// What one sequence keeps for its dealings with the cache. Its blocks are hashed once.
struct PrefixPart {
  uint64_t salt = 0;
  std::vector<PrefixHash> names;  // of its full blocks, as far as they were asked for
  std::vector<BlockRef> hits;     // waiting: blocks that hold its beginning, as of the last match()
  uint32_t added = 0;             // so many of its blocks are those of the cache
};

// Which blocks hold the KV of which beginnings of token sequences: a tree of full blocks, each
// named by PrefixHash after the one before it. A name only finds a block; it is used when its own
// tokens, its parent and its salt are equal too, so no two prefixes are ever taken for each other,
// whatever the hash. All that is here was computed by this worker or verified on receipt, and is
// never written again.
//
// A block stays while somebody holds it. When nobody does it may be evicted: least recently
// released first, and only leaves, so that what is cached can always be reached from its root;
// whoever holds a block of the cache holds all before it too, therefore every block without holders
// can be evicted in its turn. If two sequences compute the same block, the second gives its own up
// for the first one's, which holds the same bytes (design, promise 1).
//
// Beyond one registration: what is cached depends on tokens and on the coordinator's key alone. A
// lost link keeps it, a Welcome with another key ends it, since all names change.
class PrefixCache final : public BlockPool::Keeper {
 public:
  PrefixCache(BlockPool& pool, uint32_t block_tokens);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;

  // A registration begins: another key drops everything; the events begin anew.
  void begin(CacheKey key);
  // Drops everything, also what is held (its holders keep it). After numbers that are none: nothing
  // that may be spoilt must be used again.
  void clear();

  // Looks up the longest cached beginning of `tokens` of at most `most` tokens, into part.hits.
  // Cheap when little changed since the last time. Returns blocks.
  uint32_t match(PrefixPart& part, std::span<const Token> tokens, uint32_t most);
  // How many of part.hits nobody holds: revived, they are available no more.
  uint32_t idle_hits(const PrefixPart& part) const;
  // Takes a hold on the hits just matched; they are the sequence's first blocks from now on.
  std::vector<BlockRef> acquire(PrefixPart& part);
  // The first `computed` tokens' KV is in `blocks`, actively held: the full ones among them become
  // known, or are exchanged for equal ones that are known already. Without `exchange` it stops
  // before the first that would be, and returns false.
  bool add(PrefixPart& part, std::span<const Token> tokens, uint32_t computed,
           std::span<BlockRef> blocks, bool exchange = true);

  // What Ping and Beat carry.
  void seen(uint64_t number) { log_.seen(number); }
  PrefixLog::Part events();

  size_t blocks() const { return entries_.size(); }

  // BlockPool::Keeper
  void idle(BlockRef ref) override;
  void revived(BlockRef ref) override;
  void evict() override;

 private:
  struct Entry {
    PrefixHash name;
    uint64_t salt = 0;
    Entry* parent = nullptr;
    BlockRef block;
    std::vector<Token> tokens;
    uint32_t children = 0;
    uint64_t released = 0;  // when its last holder went, by clock_
    bool idle = false;
  };

  void name_blocks(PrefixPart& part, std::span<const Token> tokens, size_t blocks) const;
  std::span<const Token> block_of(std::span<const Token> tokens, size_t index) const;
  Entry* entry_of(BlockRef ref) const;
  // The entry of this name if it says exactly this.
  Entry* find(const PrefixHash& name, uint64_t salt, const Entry* parent,
              std::span<const Token> tokens);
  void leaf_changed(Entry& entry);
  std::vector<PrefixEvent> everything() const;

  BlockPool& pool_;
  const uint32_t block_tokens_;
  CacheKey key_;
  std::map<PrefixHash, Entry> entries_;
  std::vector<Entry*> by_block_;                    // by BlockId; null: not cached
  std::set<std::pair<uint64_t, uint32_t>> leaves_;  // (released, block): may be evicted
  uint64_t clock_ = 0;
  PrefixLog log_;
};

}  // namespace headrace::worker

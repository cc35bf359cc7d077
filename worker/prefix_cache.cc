#include "worker/prefix_cache.h"

#include <algorithm>

#include "protocol/check.h"
#include "protocol/limits.h"
#include "protocol/planted.h"

namespace headrace::worker {

// The log holds everything there can be, and as much again of what has changed since.
PrefixCache::PrefixCache(BlockPool& pool, uint32_t block_tokens)
    : pool_(pool),
      block_tokens_(block_tokens),
      by_block_(pool.total(), nullptr),
      log_(size_t{2} * pool.total() + limits::kPrefixEvents) {
  CHECK(block_tokens > 0);
  pool_.set_keeper(this);
}

PrefixCache::~PrefixCache() { pool_.set_keeper(nullptr); }

void PrefixCache::begin(CacheKey key) {
  if (key != key_) clear();
  key_ = key;
  log_.restart(everything());
}

void PrefixCache::clear() {
  leaves_.clear();
  for (auto& [name, entry] : entries_) {
    by_block_[raw(entry.block.block)] = nullptr;
    pool_.drop(entry.block);
  }
  entries_.clear();
  log_.reset({});
}

uint32_t PrefixCache::match(PrefixPart& part, std::span<const Token> tokens, uint32_t most) {
  const size_t blocks = std::min<size_t>(most, tokens.size()) / block_tokens_;
  name_blocks(part, tokens, blocks);
  std::vector<BlockRef>& hits = part.hits;
  if (hits.size() > blocks) hits.resize(blocks);
  // Leaves go first: while the last hit is there, so are those before it.
  while (!hits.empty() && entry_of(hits.back()) == nullptr) hits.pop_back();
  Entry* parent = hits.empty() ? nullptr : entry_of(hits.back());
  while (hits.size() < blocks) {
    const size_t i = hits.size();
    parent = find(part.names[i], part.salt, parent, block_of(tokens, i));
    if (parent == nullptr) break;
    hits.push_back(parent->block);
  }
  return static_cast<uint32_t>(hits.size());
}

uint32_t PrefixCache::idle_hits(const PrefixPart& part) const {
  // Whoever holds one holds those before it: the idle ones are the last.
  const auto first_idle = std::partition_point(
      part.hits.begin(), part.hits.end(), [&](BlockRef ref) { return pool_.holders(ref) > 0; });
  return static_cast<uint32_t>(part.hits.end() - first_idle);
}

std::vector<BlockRef> PrefixCache::acquire(PrefixPart& part) {
  for (const BlockRef& ref : part.hits) {
    CHECK(entry_of(ref) != nullptr);
    pool_.hold(ref, Hold::kActive);
  }
  part.added = static_cast<uint32_t>(part.hits.size());
  return std::exchange(part.hits, {});
}

bool PrefixCache::add(PrefixPart& part, std::span<const Token> tokens, uint32_t computed,
                      std::span<BlockRef> blocks, bool exchange) {
  const uint32_t full = computed / block_tokens_;
  if (part.added >= full) return true;
  name_blocks(part, tokens, full);
  for (; part.added < full; ++part.added) {
    const uint32_t i = part.added;
    Entry* parent = nullptr;
    if (i > 0) {
      parent = entry_of(blocks[i - 1]);
      if (parent == nullptr) return true;  // its beginning was dropped meanwhile
    }
    const auto own_tokens = block_of(tokens, i);
    if (const Entry* known = find(part.names[i], part.salt, parent, own_tokens)) {
      if (known->block == blocks[i]) continue;
      if (!exchange) return false;
      pool_.hold(known->block, Hold::kActive);
      pool_.release(blocks[i], Hold::kActive);
      blocks[i] = known->block;
      continue;
    }
    Entry entry{part.names[i], part.salt, parent, blocks[i], {}, 0, 0, false};
    entry.tokens.assign(own_tokens.begin(), own_tokens.end());
    const auto [at, fresh] = entries_.emplace(part.names[i], std::move(entry));
    if (!fresh) return true;  // another prefix has this name: ours stays unknown
    by_block_[raw(blocks[i].block)] = &at->second;
    pool_.keep(blocks[i]);
    if (parent != nullptr) {
      ++parent->children;
      leaf_changed(*parent);
    }
    log_.add({PrefixEvent::Kind::kAdded, part.names[i].brief()});
  }
  return true;
}

PrefixLog::Part PrefixCache::events() {
  if (log_.lost()) log_.reset(everything());
  return log_.unseen(limits::kPrefixEvents);
}

void PrefixCache::idle(BlockRef ref) {
  Entry* entry = entry_of(ref);
  CHECK(entry != nullptr);
  entry->idle = true;
  entry->released = ++clock_;
  leaf_changed(*entry);
}

void PrefixCache::revived(BlockRef ref) {
  Entry* entry = entry_of(ref);
  CHECK(entry != nullptr);
  leaves_.erase({entry->released, raw(ref.block)});
  entry->idle = false;
}

void PrefixCache::evict() {
  CHECK(!leaves_.empty());
  const auto block = leaves_.begin()->second;
  Entry* entry = by_block_[block];
  CHECK(entry != nullptr && entry->idle && entry->children == 0);
  leaves_.erase(leaves_.begin());
  if (Entry* parent = entry->parent) {
    --parent->children;
    leaf_changed(*parent);
  }
  log_.add({PrefixEvent::Kind::kEvicted, entry->name.brief()});
  const BlockRef ref = entry->block;
  by_block_[block] = nullptr;
  entries_.erase(entry->name);
  pool_.drop(ref);
}

void PrefixCache::name_blocks(PrefixPart& part, std::span<const Token> tokens,
                              size_t blocks) const {
  PrefixHash before = part.names.empty() ? prefix_root(key_, part.salt) : part.names.back();
  while (part.names.size() < blocks) {
    auto block = block_of(tokens, part.names.size());
    if (planted(Mistake::kPrefixUnchecked)) block = block.first(1);
    before = prefix_next(key_, before, block);
    part.names.push_back(before);
  }
}

std::span<const Token> PrefixCache::block_of(std::span<const Token> tokens, size_t index) const {
  return tokens.subspan(index * block_tokens_, block_tokens_);
}

PrefixCache::Entry* PrefixCache::entry_of(BlockRef ref) const {
  Entry* entry = by_block_[raw(ref.block)];
  return entry != nullptr && entry->block == ref ? entry : nullptr;
}

PrefixCache::Entry* PrefixCache::find(const PrefixHash& name, uint64_t salt, const Entry* parent,
                                      std::span<const Token> tokens) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return nullptr;
  Entry& entry = it->second;
  const bool same =
      entry.parent == parent && entry.salt == salt &&
      std::equal(tokens.begin(), tokens.end(), entry.tokens.begin(), entry.tokens.end());
  return same || planted(Mistake::kPrefixUnchecked) ? &entry : nullptr;
}

// Into the leaves or out of them.
void PrefixCache::leaf_changed(Entry& entry) {
  const std::pair key(entry.released, raw(entry.block.block));
  if ((entry.idle || planted(Mistake::kEvictInUse)) && entry.children == 0) {
    leaves_.insert(key);
  } else {
    leaves_.erase(key);
  }
}

std::vector<PrefixEvent> PrefixCache::everything() const {
  std::vector<PrefixEvent> all;
  all.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) {
    all.push_back({PrefixEvent::Kind::kAdded, name.brief()});
  }
  return all;
}

}  // namespace headrace::worker

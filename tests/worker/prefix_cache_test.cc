#include "worker/prefix_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

constexpr uint32_t kT = 4;  // tokens of a block
const CacheKey kKey{3, 4};

std::vector<Token> tokens(uint32_t n, Token first = 0) {
  std::vector<Token> out(n);
  for (uint32_t i = 0; i < n; ++i) out[i] = first + static_cast<Token>(i);
  return out;
}

struct Rig {
  explicit Rig(uint32_t blocks = 16) : pool(blocks), cache(pool, kT) { cache.begin(kKey); }

  // As a sequence does: begins with what is cached, computes the rest, leaves all of it.
  struct Sequence {
    std::vector<Token> tokens;
    PrefixPart part;
    std::vector<BlockRef> blocks;
    uint32_t hits = 0;
  };
  Sequence begin(std::vector<Token> t, uint64_t salt = 0) {
    Sequence s;
    s.tokens = std::move(t);
    s.part.salt = salt;
    s.hits = cache.match(s.part, s.tokens, static_cast<uint32_t>(s.tokens.size()));
    s.blocks = cache.acquire(s.part);
    const auto all = static_cast<uint32_t>((s.tokens.size() + kT - 1) / kT);
    const auto fresh = pool.take(all - s.hits, Hold::kActive);
    REQUIRE(fresh.has_value());
    s.blocks.insert(s.blocks.end(), fresh->begin(), fresh->end());
    return s;
  }
  void compute(Sequence& s) {
    cache.add(s.part, s.tokens, static_cast<uint32_t>(s.tokens.size()), s.blocks);
  }
  void end(Sequence& s) { pool.release(std::exchange(s.blocks, {}), Hold::kActive); }
  void run(std::vector<Token> t, uint64_t salt = 0) {
    Sequence s = begin(std::move(t), salt);
    compute(s);
    end(s);
  }
  uint32_t hit(const std::vector<Token>& t, uint64_t salt = 0, uint32_t most = 1000) {
    PrefixPart part;
    part.salt = salt;
    return cache.match(part, t, most);
  }

  BlockPool pool;
  PrefixCache cache;
};

TEST_CASE("full blocks are found again, by tokens in the same place and under the same salt") {
  Rig rig;
  rig.run(tokens(10));  // 2 full blocks
  CHECK(rig.cache.blocks() == 2);
  CHECK(rig.pool.counts().cached == 2);
  CHECK(rig.pool.counts().free == 14);
  CHECK(rig.hit(tokens(10)) == 2);
  CHECK(rig.hit(tokens(8)) == 2);
  CHECK(rig.hit(tokens(7)) == 1);
  CHECK(rig.hit(tokens(3)) == 0);
  CHECK(rig.hit(tokens(100)) == 2);
  CHECK(rig.hit(tokens(8, 4)) == 0);  // the second block alone is no prefix
  CHECK(rig.hit(tokens(10), 1) == 0);
  auto other = tokens(10);
  other[7] = 99;
  CHECK(rig.hit(other) == 1);
  CHECK(rig.hit(tokens(8), 0, 7) == 1);  // at most n - 1 tokens, where one is to be sampled
}

TEST_CASE("hits are shared while they are held, and freed by their last holder only") {
  Rig rig;
  auto a = rig.begin(tokens(8));
  rig.compute(a);
  auto b = rig.begin(tokens(12));
  CHECK(b.hits == 2);
  CHECK(b.blocks[0] == a.blocks[0]);
  CHECK(rig.pool.holders(a.blocks[1]) == 2);
  CHECK(rig.pool.counts().active == 3);
  rig.end(a);
  CHECK(rig.pool.counts().active == 3);
  CHECK(rig.pool.counts().cached == 0);
  rig.compute(b);
  rig.end(b);
  CHECK(rig.pool.counts().cached == 3);
}

TEST_CASE("who computed what is cached already takes the cached block for its own") {
  Rig rig;
  auto a = rig.begin(tokens(8));
  auto b = rig.begin(tokens(9));
  CHECK(rig.pool.counts().active == 5);
  rig.compute(a);
  rig.compute(b);
  CHECK(b.blocks[0] == a.blocks[0]);
  CHECK(b.blocks[1] == a.blocks[1]);
  CHECK(rig.pool.counts().active == 3);
  rig.end(a);
  rig.end(b);
  CHECK(rig.pool.counts().cached == 2);
  CHECK(rig.pool.counts().free == 14);
}

TEST_CASE("where nothing may be exchanged it is left out, and done later") {
  Rig r;
  Rig::Sequence a = r.begin(tokens(8)), b = r.begin(tokens(12));
  const std::vector<BlockRef> own = b.blocks;
  CHECK(r.cache.add(b.part, b.tokens, 4, b.blocks, false));
  r.compute(a);
  CHECK(a.blocks[0] == own[0]);
  CHECK_FALSE(r.cache.add(b.part, b.tokens, 12, b.blocks, false));
  CHECK(b.blocks == own);
  CHECK(b.part.added == 1);
  CHECK(r.hit(tokens(12)) == 2);
  CHECK(r.cache.add(b.part, b.tokens, 12, b.blocks));
  CHECK(b.blocks[1] == a.blocks[1]);
  CHECK(b.blocks[2] == own[2]);
  CHECK(r.hit(tokens(12)) == 3);
  r.end(a);
  r.end(b);
}

TEST_CASE("the least recently used end of a chain goes first, never a block before its children") {
  Rig rig(6);
  rig.run(tokens(12));      // 3 blocks
  rig.run(tokens(8, 100));  // 2 blocks
  CHECK(rig.hit(tokens(12)) == 3);
  auto x = rig.begin(tokens(8, 200));  // 1 free, 1 evicted
  CHECK(rig.hit(tokens(12)) == 2);
  CHECK(rig.hit(tokens(8, 100)) == 2);
  rig.end(x);
  rig.run(tokens(8));  // used again: now the other chain is the older one
  auto y = rig.begin(tokens(12, 200));
  CHECK(rig.hit(tokens(12)) == 2);
  CHECK(rig.hit(tokens(8, 100)) == 1);
  rig.end(y);
  auto z = rig.begin(tokens(24, 300));
  CHECK(rig.cache.blocks() == 0);
  rig.end(z);
  CHECK(rig.pool.counts().free == 6);
}

TEST_CASE("what is held is not evicted") {
  Rig rig(4);
  auto a = rig.begin(tokens(12));
  rig.compute(a);
  CHECK(rig.pool.available() == 1);
  CHECK(!rig.pool.take(2, Hold::kActive).has_value());
  rig.end(a);
  CHECK(rig.pool.take(4, Hold::kActive).has_value());
  CHECK(rig.cache.blocks() == 0);
}

// Names are only a way to find: with equal names for different prefixes nothing is mixed up.
TEST_CASE("a name that stands for two prefixes gives no wrong hit") {
  Rig rig;
  rig.run(tokens(8));
  PrefixPart honest;
  rig.cache.match(honest, tokens(8), 8);
  const auto forged_hit = [&](std::vector<Token> t, uint64_t salt, std::vector<PrefixHash> names) {
    PrefixPart part;
    part.salt = salt;
    part.names = std::move(names);
    return rig.cache.match(part, t, 1000);
  };
  CHECK(forged_hit(tokens(8), 0, honest.names) == 2);
  CHECK(forged_hit(tokens(8, 50), 0, honest.names) == 0);
  CHECK(forged_hit(tokens(8), 5, honest.names) == 0);
  auto second_differs = tokens(8);
  second_differs[5] = 77;
  CHECK(forged_hit(second_differs, 0, honest.names) == 1);
  // The right tokens of the second block after another first block.
  auto first_differs = tokens(8);
  first_differs[0] = 77;
  CHECK(forged_hit(first_differs, 0, honest.names) == 0);
  CHECK(forged_hit(tokens(8, 4), 0, {honest.names[1], honest.names[0]}) == 0);
  // Nor is what has a taken name put in its place.
  auto s = rig.begin(tokens(8, 50));
  s.part.names = honest.names;
  rig.compute(s);
  rig.end(s);
  CHECK(rig.hit(tokens(8)) == 2);
  CHECK(rig.cache.blocks() == 2);
}

TEST_CASE("another key or a clear ends everything; holders keep what they hold") {
  Rig rig;
  auto a = rig.begin(tokens(8));
  rig.compute(a);
  rig.run(tokens(8, 100));
  SUBCASE("clear") { rig.cache.clear(); }
  SUBCASE("key") { rig.cache.begin({3, 5}); }
  CHECK(rig.cache.blocks() == 0);
  CHECK(rig.pool.counts().active == 2);
  CHECK(rig.pool.counts().cached == 0);
  CHECK(rig.hit(tokens(8)) == 0);
  // A block after one that was dropped cannot be reached: it is not added.
  a.tokens = tokens(12);
  a.blocks.push_back(rig.pool.take(1, Hold::kActive)->front());
  rig.compute(a);
  CHECK(rig.cache.blocks() == 0);
  rig.end(a);
  CHECK(rig.pool.counts().free == 16);
}

TEST_CASE("the same key again keeps everything, and its events begin anew") {
  Rig rig;
  rig.run(tokens(8));
  rig.cache.seen(2);
  CHECK(rig.cache.events().events.empty());
  rig.cache.begin(kKey);
  CHECK(rig.hit(tokens(8)) == 2);
  CHECK(rig.cache.events().from == 0);
  CHECK(rig.cache.events().events.size() == 2);
}

TEST_CASE("a match is corrected by what happened since") {
  Rig rig(4);
  PrefixPart part;
  const auto t = tokens(16);
  CHECK(rig.cache.match(part, t, 16) == 0);
  rig.run(tokens(8));
  CHECK(rig.cache.match(part, t, 16) == 2);
  CHECK(rig.cache.idle_hits(part) == 2);
  auto a = rig.begin(tokens(5));
  CHECK(rig.cache.match(part, t, 16) == 2);
  CHECK(rig.cache.idle_hits(part) == 1);
  const auto all = rig.pool.take(2, Hold::kActive);  // evicts the second
  REQUIRE(all.has_value());
  CHECK(rig.cache.match(part, t, 16) == 1);
  CHECK(rig.cache.idle_hits(part) == 0);
  CHECK(rig.cache.match(part, t, 3) == 0);
  rig.end(a);
}

// Against a plain model: what is cached is what was added and not evicted; hits follow from it.
TEST_CASE("any order of use keeps counts, reachability and events right") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    SeededRandom random(seed);
    Rig rig(24);
    std::vector<Rig::Sequence> live;
    std::set<uint64_t> known;
    for (int i = 0; i < 1500; ++i) {
      if (live.size() < 4 && random.next() % 2 == 0) {
        // Few tokens, so that prefixes are shared and part in many places.
        std::vector<Token> t(1 + random.next() % 20);
        for (Token& x : t) x = static_cast<Token>(random.next() % 8 == 0);
        const auto all = static_cast<uint32_t>((t.size() + kT - 1) / kT);
        if (rig.pool.available() >= all) live.push_back(rig.begin(t, random.next() % 2));
      } else if (!live.empty()) {
        const size_t at = random.next() % live.size();
        if (random.next() % 2 == 0) rig.compute(live[at]);
        rig.end(live[at]);
        live.erase(live.begin() + static_cast<ptrdiff_t>(at));
      }
      const auto part = rig.cache.events();
      for (const PrefixEvent& e : part.events) {
        REQUIRE(e.kind != PrefixEvent::Kind::kReset);
        const bool changed = e.kind == PrefixEvent::Kind::kAdded ? known.insert(e.hash).second
                                                                 : known.erase(e.hash) > 0;
        REQUIRE(changed);
      }
      rig.cache.seen(part.from + part.events.size());
      REQUIRE(known.size() == rig.cache.blocks());
      const BlockCounts c = rig.pool.counts();
      REQUIRE(c.free + c.cached + c.active == c.total);
      for (const auto& s : live) {
        for (const BlockRef& ref : s.blocks) REQUIRE(rig.pool.state(ref) == BlockState::kActive);
      }
    }
    for (auto& s : live) rig.end(s);
    const BlockCounts c = rig.pool.counts();
    CHECK(c.free + c.cached == c.total);
    CHECK(c.cached == rig.cache.blocks());
    REQUIRE(rig.pool.take(24, Hold::kActive).has_value());  // all of it can be evicted
  }
}

}  // namespace
}  // namespace headrace::worker

#include "protocol/prefix_hash.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <string>

#include "protocol/random.h"

namespace headrace {
namespace {

// SipHash-2-4 with 128 bits of output straight from the paper and its authors' note on the wide
// variant: two words of key, a last word that ends with the length, 2 rounds a word, 4 for each
// half of the result.
class PlainSipHash {
 public:
  explicit PlainSipHash(CacheKey key)
      : v_{key.hi ^ 0x736f6d6570736575, key.lo ^ 0x646f72616e646f6d ^ 0xee,
           key.hi ^ 0x6c7967656e657261, key.lo ^ 0x7465646279746573} {}

  PrefixHash of(const std::string& message) {
    std::string padded = message + std::string(7 - message.size() % 8, '\0');
    padded += static_cast<char>(message.size());
    for (size_t i = 0; i < padded.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, padded.data() + i, 8);
      v_[3] ^= word;
      rounds(2);
      v_[0] ^= word;
    }
    PrefixHash hash;
    v_[2] ^= 0xee;
    rounds(4);
    hash.hi = v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
    v_[1] ^= 0xdd;
    rounds(4);
    hash.lo = v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
    return hash;
  }

 private:
  void half(int a, int b, int turn_b, int c, int d, int turn_d) {
    v_[a] += v_[b];
    v_[c] += v_[d];
    v_[b] = std::rotl(v_[b], turn_b) ^ v_[a];
    v_[d] = std::rotl(v_[d], turn_d) ^ v_[c];
    v_[a] = std::rotl(v_[a], 32);
  }
  void rounds(int n) {
    for (; n > 0; --n) {
      half(0, 1, 13, 2, 3, 16);
      half(2, 1, 17, 0, 3, 21);
    }
  }
  std::array<uint64_t, 4> v_;
};

constexpr CacheKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::string words(std::initializer_list<uint64_t> values) {
  std::string out;
  for (uint64_t v : values) out.append(reinterpret_cast<const char*>(&v), 8);
  return out;
}

std::string bytes(std::span<const Token> tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
}

std::vector<Token> random_tokens(size_t n, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<Token> tokens(n);
  for (Token& t : tokens) t = static_cast<Token>(random.next() % 50'000);
  return tokens;
}

// Of the messages 00 01 02 ... of so many bytes under the key 00 01 ... 0f; as the reference
// implementation of SipHash prints them.
TEST_CASE("the plain hash gives the reference's values") {
  const auto of = [](size_t n) {
    std::string message;
    for (size_t i = 0; i < n; ++i) message += static_cast<char>(i);
    const PrefixHash hash = PlainSipHash(kKey).of(message);
    std::array<unsigned char, 16> out;
    std::memcpy(out.data(), &hash.hi, 8);
    std::memcpy(out.data() + 8, &hash.lo, 8);
    std::string hex;
    for (unsigned char c : out)
      for (int digit : {c / 16, c % 16}) hex += "0123456789abcdef"[digit];
    return hex;
  };
  CHECK(of(0) == "a3817f04ba25a8e66df67214c7550293");
  CHECK(of(1) == "da87c1d86b99af44347659119b22fc45");
  CHECK(of(15) == "5493e99933b0a8117e08ec0f97cfc3d9");
  CHECK(of(63) == "5150d1772f50834a503e069a973fbd7c");
}

TEST_CASE("root, links and salts are the plain hash of kind and contents") {
  for (const CacheKey key : {kKey, CacheKey{}, CacheKey{~0ull, 1}}) {
    CHECK(prefix_root(key, 77) == PlainSipHash(key).of(words({1, 77})));
    for (size_t n : {0, 1, 16, 32, 63, 64}) {
      const auto tokens = random_tokens(n, n);
      CHECK(prefix_next(key, {5, 6}, tokens) ==
            PlainSipHash(key).of(words({2, 5, 6}) + bytes(tokens)));
    }
    const std::string text = "tenant-a";
    CHECK(cache_salt(key, text) == PlainSipHash(key).of(words({3}) + text).lo);
  }
}

TEST_CASE("a chain is the links one after the other, of full blocks only") {
  const auto tokens = random_tokens(100, 1);
  for (uint32_t block : {1u, 7u, 16u, 32u, 64u, 100u, 101u}) {
    const auto chain = prefix_chain(kKey, 9, tokens, block);
    REQUIRE(chain.size() == 100 / block);
    PrefixHash at = prefix_root(kKey, 9);
    for (size_t i = 0; i < chain.size(); ++i) {
      at = prefix_next(kKey, at, std::span(tokens).subspan(i * block, block));
      CHECK(chain[i] == at);
    }
  }
  CHECK(prefix_chain(kKey, 9, {}, 32).empty());
}

TEST_CASE("key, salt and every earlier token show in all that follows, later ones do not") {
  const auto tokens = random_tokens(128, 2);
  const auto chain = prefix_chain(kKey, 0, tokens, 16);
  const auto differ = [&](const std::vector<PrefixHash>& other, size_t from) {
    REQUIRE(other.size() == chain.size());
    for (size_t i = 0; i < chain.size(); ++i) {
      CHECK((other[i] == chain[i]) == (i < from));
      CHECK((other[i].brief() == chain[i].brief()) == (i < from));
    }
  };
  differ(prefix_chain(kKey, 0, tokens, 16), 8);
  differ(prefix_chain(kKey, 1, tokens, 16), 0);
  differ(prefix_chain({kKey.hi + 1, kKey.lo}, 0, tokens, 16), 0);
  differ(prefix_chain({kKey.hi, kKey.lo ^ (1ull << 63)}, 0, tokens, 16), 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto changed = tokens;
    changed[i] ^= 1 << (i % 16);
    differ(prefix_chain(kKey, 0, changed, 16), i / 16);
  }
}

TEST_CASE("equal blocks at different places have different names") {
  const std::vector<Token> same(1024, 3);
  const auto chain = prefix_chain(kKey, 0, same, 16);
  CHECK(std::set<PrefixHash>(chain.begin(), chain.end()).size() == 64);
}

TEST_CASE("tenants: no text is the common salt, every other text one of its own") {
  CHECK(cache_salt(kKey, std::string()) == 0);
  std::set<uint64_t> salts{0};
  const std::string texts[] = {"a", "b", "ab", std::string(1, '\0'), std::string(2, '\0'), "A"};
  for (const std::string& text : texts) salts.insert(cache_salt(kKey, text));
  CHECK(salts.size() == 7);
  CHECK(cache_salt(kKey, std::string("a")) == cache_salt(kKey, std::string("a")));
  CHECK(cache_salt({1, 2}, std::string("a")) != cache_salt(kKey, std::string("a")));
}

}  // namespace
}  // namespace headrace

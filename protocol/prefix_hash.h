#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "protocol/ids.h"

namespace headrace {

// Names of the full KV blocks of a prompt: hash i stands for all tokens up to the end of block i.
// h(0) is chained from the salt, h(i) from h(i-1): SipHash-2-4 with 128 bits of output, keyed, so
// that nobody without the key can make two prefixes collide. A name finds a block; whoever uses the
// block compares the tokens first.
// Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", 2012; 128-bit variant as in the
// authors' reference.
struct PrefixHash {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const PrefixHash&) const = default;
  uint64_t brief() const { return lo; }  // as PrefixEvent carries it
};

// The value h(-1) from which a chain begins.
PrefixHash prefix_root(CacheKey key, uint64_t salt);
// The next link of the chain: `tokens` of one full block after `before`.
PrefixHash prefix_next(CacheKey key, PrefixHash before, std::span<const Token> tokens);
// Of every full block of `tokens`, in order: tokens.size() / block_tokens of them.
std::vector<PrefixHash> prefix_chain(CacheKey key, uint64_t salt, std::span<const Token> tokens,
                                     uint32_t block_tokens);
// What keeps tenants apart, from the text a client may give; 0 for the empty text.
uint64_t cache_salt(CacheKey key, std::span<const char> text);

}  // namespace headrace

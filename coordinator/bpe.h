#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "protocol/ids.h"

namespace headrace::coordinator {

// Byte-pair merges (Sennrich et al. 2016): of all neighbouring pairs that have a merge, the one of
// the lowest rank is joined first, the leftmost among equals. A value; `apply` may run on many
// threads at once.
class BpeMerges {
 public:
  void reserve(size_t merges) { table_.reserve(merges); }
  // Rank = number of merges added before. False, and nothing added, if the pair has one already.
  bool add(Token left, Token right, Token result);

  // Buffers that `apply` uses again, so that short words cost no allocation.
  struct Scratch {
    struct Symbol {
      Token id;
      uint32_t previous;
      uint32_t next;
    };
    struct Candidate {
      uint32_t rank;
      uint32_t at;  // of the left symbol
      Token left;
      Token right;
      Token result;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends to `out` what becomes of `word`, n < 2^32 - 1 symbols, in O(n log n): a linked list of
  // symbols and a heap of candidate merges; one that no longer fits when its turn comes is dropped.
  void apply(std::span<const Token> word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  struct Merge {
    uint32_t rank;
    Token result;
  };
  static uint64_t key(Token left, Token right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  const Merge* find(Token left, Token right) const;
  void propose(Scratch& scratch, uint32_t at) const;

  // Keys are pairs of small numbers; this spreads them over the buckets.
  struct Mix {
    size_t operator()(uint64_t k) const {
      k *= 0x9E3779B97F4A7C15ull;
      return static_cast<size_t>(k ^ k >> 32);
    }
  };
  std::unordered_map<uint64_t, Merge, Mix> table_;
};

}  // namespace headrace::coordinator

#include "coordinator/bpe.h"

#include <algorithm>

#include "protocol/check.h"

namespace headrace::coordinator {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

using Candidate = BpeMerges::Scratch::Candidate;

// Makes std's heap yield the lowest rank, then the leftmost place.
bool later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

bool BpeMerges::add(Token left, Token right, Token result) {
  const auto rank = static_cast<uint32_t>(table_.size());
  return table_.try_emplace(key(left, right), Merge{rank, result}).second;
}

const BpeMerges::Merge* BpeMerges::find(Token left, Token right) const {
  const auto it = table_.find(key(left, right));
  return it == table_.end() ? nullptr : &it->second;
}

void BpeMerges::propose(Scratch& scratch, uint32_t at) const {
  const auto& symbol = scratch.symbols[at];
  if (symbol.next == kNone) return;
  const Token right = scratch.symbols[symbol.next].id;
  const Merge* merge = find(symbol.id, right);
  if (merge) scratch.heap.push_back({merge->rank, at, symbol.id, right, merge->result});
}

void BpeMerges::apply(std::span<const Token> word, Scratch& scratch,
                      std::vector<Token>& out) const {
  if (word.empty()) return;
  CHECK(word.size() < kNone);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto n = static_cast<uint32_t>(word.size());
  for (uint32_t i = 0; i < n; ++i) {
    symbols.push_back({word[i], i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1});
  }
  for (uint32_t i = 0; i < n; ++i) propose(scratch, i);
  std::make_heap(heap.begin(), heap.end(), later);
  const auto propose_pushed = [&](uint32_t at) {
    const size_t before = heap.size();
    propose(scratch, at);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    auto& left = symbols[best.at];
    if (left.id != best.left || left.next == kNone) continue;
    auto& right = symbols[left.next];
    if (right.id != best.right) continue;
    left.id = best.result;
    right.id = -1;  // no candidate names it again
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = best.at;
    propose_pushed(best.at);
    if (left.previous != kNone) propose_pushed(left.previous);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace headrace::coordinator

#include "worker/penalties.h"

#include <algorithm>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

constexpr auto kById = [](const auto& a, const auto& b) { return a.id < b.id; };

}  // namespace

Penalties::Penalties(const Sampling& sampling, uint32_t first_generated)
    : presence_(sampling.presence_penalty),
      frequency_(sampling.frequency_penalty),
      repetition_(sampling.repetition_penalty),
      bias_(sampling.bias),
      first_generated_(first_generated) {
  entries_.reserve(bias_.size());
  std::stable_sort(bias_.begin(), bias_.end(), kById);
  for (const LogitBias& b : bias_) {
    if (entries_.empty() || entries_.back().id != b.id) {
      entries_.emplace_back();
      entries_.back().id = b.id;
    }
    entries_.back().bias += b.bias;
  }
}

std::vector<kernels::LogitEdit> Penalties::edits(std::span<const Token> tokens) {
  std::vector<kernels::LogitEdit> edits;
  if (idle()) return edits;
  CHECK(tokens.size() >= taken_);
  const size_t prompt = std::clamp(first_generated_, taken_, tokens.size());
  if (counts_prompt()) take(tokens.subspan(taken_, prompt - taken_), false);
  if (counts()) take(tokens.subspan(prompt), true);
  taken_ = tokens.size();
  edits.reserve(entries_.size());
  for (const Entry& entry : entries_) edits.push_back(edit(entry));
  return edits;
}

// Sorted first: a long prompt costs n log n once, and one new token a search.
void Penalties::take(std::span<const Token> tokens, bool generated) {
  std::vector<Token> ids(tokens.begin(), tokens.end());
  std::sort(ids.begin(), ids.end());
  const size_t known = entries_.size();
  for (auto from = ids.begin(); from != ids.end();) {
    const auto to = std::upper_bound(from, ids.end(), *from);
    Entry wanted;
    wanted.id = *from;
    const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(known);
    auto at = std::lower_bound(entries_.begin(), end, wanted, kById);
    if (at == end || at->id != wanted.id) at = entries_.insert(entries_.end(), wanted);
    at->seen = true;
    if (generated) at->generated += static_cast<uint32_t>(to - from);
    from = to;
  }
  std::inplace_merge(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(known),
                     entries_.end(), kById);
}

// From the counts, never summed up step by step: the same counts give the same bits.
kernels::LogitEdit Penalties::edit(const Entry& entry) const {
  double add = entry.bias;
  if (entry.generated > 0) {
    add -= presence_;
    add -= double{frequency_} * entry.generated;
  }
  return {entry.id, entry.seen ? repetition_ : 1, static_cast<float>(add)};
}

}  // namespace headrace::worker

#include "coordinator/poison_list.h"

#include <algorithm>

#include "coordinator/tokenizer_fetch.h"

namespace headrace::coordinator {
namespace {

constexpr size_t kDeathsKept = 64;

}  // namespace

void PoisonList::worker_died(Instant now) {
  if (deaths_.size() >= kDeathsKept) deaths_.pop_front();
  deaths_.push_back(now);
}

size_t PoisonList::deaths(Instant now) const {
  return static_cast<size_t>(std::count_if(
      deaths_.begin(), deaths_.end(), [&](Instant died) { return now - died <= kPoisonWindow; }));
}

void PoisonList::bar(Digest prompt, Instant now) {
  if (!barred_.contains(prompt) && barred_.size() >= kBarredMax)
    barred_.erase(
        std::min_element(barred_.begin(), barred_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; }));
  barred_[prompt] = now + kBarredFor;
}

bool PoisonList::barred(Digest prompt, Instant now) const {
  const auto it = barred_.find(prompt);
  return it != barred_.end() && now < it->second;
}

void PoisonList::sweep(Instant now) {
  std::erase_if(barred_, [&](const auto& b) { return now >= b.second; });
}

Digest prompt_digest(std::span<const Token> prompt) { return digest_of(std::as_bytes(prompt)); }

}  // namespace headrace::coordinator

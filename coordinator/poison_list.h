#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "coordinator/limits.h"
#include "protocol/ids.h"

namespace headrace::coordinator {

// Prompts that workers died of, and when workers died. A dead worker alone proves nothing: machines
// are switched off. A request is taken for the cause when two workers in a row died with it before
// it had a new token, and no other worker died lately.
class PoisonList {
 public:
  void worker_died(Instant now);
  // Workers that died within kPoisonWindow.
  size_t deaths(Instant now) const;

  void bar(Digest prompt,
           Instant now);  // for kBarredFor; the oldest goes when kBarredMax are there
  bool barred(Digest prompt, Instant now) const;
  void sweep(Instant now);
  size_t size() const { return barred_.size(); }

 private:
  std::deque<Instant> deaths_;  // at most kDeathsKept, oldest first
  std::map<Digest, Instant> barred_;
};

Digest prompt_digest(std::span<const Token> prompt);

}  // namespace headrace::coordinator

#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "protocol/messages.h"

namespace headrace::worker {

// What happened in a prefix cache, numbered from 0 since the worker registered, kept until the
// coordinator says that it has seen it. Sent again until then, so a lost beat loses nothing.
//
// Bounded: past `most` events the oldest are forgotten. A coordinator that had not seen them gets
// kReset and then everything that is cached, under new, higher numbers. So numbers follow each
// other, except that a kReset may stand anywhere above: whoever finds a gap takes what follows it
// only if it begins with kReset. A number is never given twice.
class PrefixLog {
 public:
  explicit PrefixLog(size_t most) : most_(most) {}

  // A new registration: numbers from 0, `all` is cached.
  void restart(std::vector<PrefixEvent> all);
  void add(PrefixEvent event);
  // Forget all that was said: `all` is what is cached.
  void reset(std::vector<PrefixEvent> all);
  // The coordinator has all events before `number`. Late and senseless numbers change nothing.
  void seen(uint64_t number);
  // It misses events that were forgotten: the owner has to call reset().
  bool lost() const { return seen_ < first_; }

  struct Part {
    uint64_t from = 0;
    std::vector<PrefixEvent> events;
  };
  // What it has not seen, at most `n` events; not after lost().
  Part unseen(size_t n) const;

 private:
  uint64_t end() const { return first_ + log_.size(); }

  size_t most_;
  uint64_t first_ = 0;  // number of log_.front()
  uint64_t seen_ = 0;
  std::deque<PrefixEvent> log_;
};

}  // namespace headrace::worker

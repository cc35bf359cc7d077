#pragma once

#include <kj/async.h>
#include <kj/timer.h>

#include <deque>

namespace headrace {

// Lets so many of those who wait through in each round of a KJ loop, the longest waiting first; in
// between the loop looks at its sockets and timers. So a round stays short, whoever has much to
// say. Lives on the loop; who waits when it is destroyed fails.
class Turnstile final : private kj::TaskSet::ErrorHandler {
 public:
  Turnstile(kj::Timer& timer, size_t at_once) : timer_(timer), at_once_(at_once), rounds_(*this) {}

  kj::Promise<void> pass();
  size_t waiting() const { return waiting_.size(); }

 private:
  void begin_round();
  void taskFailed(kj::Exception&& why) override;

  kj::Timer& timer_;
  size_t at_once_;
  size_t passed_ = 0;        // in this round
  bool round_next_ = false;  // another round is due
  std::deque<kj::Own<kj::PromiseFulfiller<void>>> waiting_;
  kj::TaskSet rounds_;
};

}  // namespace headrace

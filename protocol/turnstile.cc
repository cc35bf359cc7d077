#include "protocol/turnstile.h"

#include <utility>

namespace headrace {

kj::Promise<void> Turnstile::pass() {
  if (!std::exchange(round_next_, true)) {
    // A timer fires after the loop has looked at all its sockets; while there is something to do
    // here it would not look.
    rounds_.add(timer_.afterDelay(0 * kj::NANOSECONDS).then([this]() { begin_round(); }));
  }
  if (passed_ < at_once_ && waiting_.empty()) {
    ++passed_;
    return kj::READY_NOW;
  }
  auto paf = kj::newPromiseAndFulfiller<void>();
  waiting_.push_back(kj::mv(paf.fulfiller));
  return kj::mv(paf.promise);
}

void Turnstile::begin_round() {
  passed_ = 0;
  while (!waiting_.empty() && passed_ < at_once_) {
    auto next = kj::mv(waiting_.front());
    waiting_.pop_front();
    if (!next->isWaiting()) continue;  // it has left
    ++passed_;
    next->fulfill();
  }
  round_next_ = passed_ > 0;
  if (round_next_)
    rounds_.add(timer_.afterDelay(0 * kj::NANOSECONDS).then([this]() { begin_round(); }));
}

void Turnstile::taskFailed(kj::Exception&& why) { kj::throwFatalException(kj::mv(why)); }

}  // namespace headrace

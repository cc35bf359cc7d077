#pragma once

#include <kj/async.h>
#include <kj/timer.h>

#include <memory>
#include <vector>

#include "coordinator/dispatcher.h"
#include "protocol/kj_strand.h"

namespace headrace::coordinator {

// The cluster's status for all who ask: one question to the Dispatcher at a time, no sooner than
// kStatusEvery after the one before. No answer is older than its question. Lives on the KJ thread.
class SharedStatus {
 public:
  static constexpr Duration kStatusEvery = 20ms;
  SharedStatus(std::shared_ptr<KjStrand> strand, kj::Timer& timer, Ref<Dispatcher> dispatcher);
  ~SharedStatus() noexcept;

  using Shared = std::shared_ptr<const ClusterStatus>;
  // While the loop runs still: who waits, and who asks from now on, is told that it is over.
  void stop();
  // Never, if the Dispatcher is gone: the caller has a deadline.
  kj::Promise<Shared> get();

 private:
  struct Port;
  void ask();  // for all in next_
  void answered(Shared status);
  std::shared_ptr<KjStrand> strand_;
  kj::Timer& timer_;
  Ref<Dispatcher> dispatcher_;
  std::vector<kj::Own<kj::PromiseFulfiller<Shared>>> asked_, next_;
  std::shared_ptr<Port> port_;  // of the question under way
  kj::TimePoint earliest_ = kj::origin<kj::TimePoint>();
  Timer later_;
  bool stopped_ = false;
};

}  // namespace headrace::coordinator

#pragma once

#include <kj/async.h>

#include <memory>

#include "coordinator/dispatcher.h"
#include "coordinator/shared_status.h"
#include "protocol/api.capnp.h"
#include "protocol/kj_strand.h"
#include "protocol/peer_tab.h"
#include "protocol/random.h"
#include "protocol/turnstile.h"

namespace headrace::coordinator {

// What all sessions share. Lives on the KJ thread.
struct GatewayCore {
  std::shared_ptr<KjStrand> strand;
  kj::Timer& timer;
  Ref<Dispatcher> dispatcher;
  Random& random;
  SharedStatus status;
  std::shared_ptr<Turnstile> turnstile;  // for questions, and answers that many get at once
  size_t open_streams = 0;               // generate and resume calls that run
  uint64_t owners = 0;                   // numbers handed to those calls: no two share one
};

// One connection, as its calls see it. They may outlive it: one that others are pipelined on is not
// destroyed with it, so it has to be told. Lives on the KJ thread.
class Presence {
 public:
  Presence() : Presence(kj::newPromiseAndFulfiller<void>()) {}
  void end();  // once: fails all that was given to `until_lost`, in its own turn

  // `promise`, but fails once the connection is over.
  template <class T>
  kj::Promise<T> until_lost(kj::Promise<T> promise) {
    return promise.exclusiveJoin(
        over_.addBranch().then([]() -> kj::Promise<T> { return kj::NEVER_DONE; }));
  }

  // True once the connection is lost: calls that die then were not dropped.
  const std::shared_ptr<bool> gone = std::make_shared<bool>(false);

 private:
  explicit Presence(kj::PromiseFulfillerPair<void> paf)
      : end_(kj::mv(paf.fulfiller)), over_(paf.promise.fork()) {}
  kj::Own<kj::PromiseFulfiller<void>> end_;
  kj::ForkedPromise<void> over_;  // never fulfilled
};

// The bootstrap capability of one connection. Lives on the KJ thread, like all that it makes. `tab`
// is charged with answers that wait to be written and chunks that were not taken.
kj::Own<api::Headrace::Server> make_session(GatewayCore& core, std::shared_ptr<Presence> presence,
                                            std::shared_ptr<PeerTab> tab);

}  // namespace headrace::coordinator

#pragma once

#include <memory>

#include "coordinator/dispatcher.h"
#include "coordinator/shared_status.h"
#include "protocol/api.capnp.h"
#include "protocol/kj_strand.h"
#include "protocol/peer_tab.h"
#include "protocol/random.h"

namespace headrace::coordinator {

// What all sessions share. Lives on the KJ thread.
struct GatewayCore {
  std::shared_ptr<KjStrand> strand;
  kj::Timer& timer;
  Ref<Dispatcher> dispatcher;
  Random& random;
  SharedStatus status;
  size_t open_streams = 0;  // generate and resume calls that run
  uint64_t owners = 0;      // numbers handed to those calls: no two share one
};

// The bootstrap capability of one connection. Lives on the KJ thread, like all that it makes.
// `gone` becomes true once the connection is lost: calls that die then were not dropped. `tab` is
// charged with answers that wait to be written and chunks that were not taken.
kj::Own<api::Headrace::Server> make_session(GatewayCore& core, std::shared_ptr<const bool> gone,
                                            std::shared_ptr<PeerTab> tab);

}  // namespace headrace::coordinator

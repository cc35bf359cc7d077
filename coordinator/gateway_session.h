#pragma once

#include <memory>

#include "coordinator/dispatcher.h"
#include "protocol/api.capnp.h"
#include "protocol/kj_strand.h"
#include "protocol/random.h"

namespace headrace::coordinator {

// What all sessions share. Lives on the KJ thread.
struct GatewayCore {
  std::shared_ptr<KjStrand> strand;
  kj::Timer& timer;
  Ref<Dispatcher> dispatcher;
  Random& random;
  size_t open_streams = 0;  // generate calls that run
};

// The bootstrap capability of one connection. Lives on the KJ thread, like all that it makes.
kj::Own<api::Headrace::Server> make_session(GatewayCore& core);

}  // namespace headrace::coordinator

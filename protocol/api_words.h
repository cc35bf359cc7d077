#pragma once

#include <kj/exception.h>

#include <string>

#include "protocol/api.capnp.h"
#include "protocol/generation.h"
#include "protocol/link.h"
#include "protocol/messages.h"
#include "protocol/result.h"

// Words of api.capnp <-> our own: what the gateway and the client library both need.
namespace headrace {

api::ErrorCode to_api(Errc code);
Errc from_api(api::ErrorCode code);  // a newer peer's word: kUnknown
api::FinishReason to_api(Finish finish);
Finish from_api(api::FinishReason finish);
api::Role to_api(Role role);

// What overloaded and unavailable ask for before the next try.
constexpr uint32_t kRetryAfterMs = 1000;
void write(api::Error::Builder to, const Status& status);
Status read(api::Error::Reader from);

template <class Tag>
void write(api::Id::Builder to, const Id128<Tag>& id) {
  to.setHi(id.hi);
  to.setLo(id.lo);
}
inline Digest read(api::Id::Reader from) { return {from.getHi(), from.getLo()}; }

void write(api::Address::Builder to, const Endpoint& endpoint);
Endpoint read(api::Address::Reader from);
void write(api::BlockCounts::Builder to, const BlockCounts& counts);
BlockCounts read(api::BlockCounts::Reader from);

// `to` has one place for each.
void write(capnp::List<api::Logprobs>::Builder to, const std::vector<Logprobs>& logprobs);
std::vector<Logprobs> read(capnp::List<api::Logprobs>::Reader from);
void write(api::Saturation::Builder to, const Saturation& saturation);
Saturation read(api::Saturation::Reader from);

std::string to_string(capnp::Text::Reader text);
// "HOST:PORT" as KJ parses it.
std::string kj_address(const Endpoint& endpoint);
// What KJ's exception means for a caller; `peer` names who was called.
Status status_of(const kj::Exception& exception, const std::string& peer);

}  // namespace headrace

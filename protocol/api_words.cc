#include "protocol/api_words.h"

#include <string_view>
#include <utility>

namespace headrace {
namespace {

constexpr std::pair<Errc, api::ErrorCode> kCodes[] = {
    {Errc::kInvalid, api::ErrorCode::INVALID},
    {Errc::kNotFound, api::ErrorCode::NOT_FOUND},
    {Errc::kOverloaded, api::ErrorCode::OVERLOADED},
    {Errc::kUnavailable, api::ErrorCode::UNAVAILABLE},
    {Errc::kCancelled, api::ErrorCode::CANCELLED},
    {Errc::kDeadline, api::ErrorCode::DEADLINE},
    {Errc::kDisconnected, api::ErrorCode::DISCONNECTED},
    {Errc::kContextExceeded, api::ErrorCode::CONTEXT_EXCEEDED},
    {Errc::kNumeric, api::ErrorCode::NUMERIC},
    {Errc::kInternal, api::ErrorCode::INTERNAL},
};

constexpr std::pair<Finish, api::FinishReason> kFinishes[] = {
    {Finish::kNone, api::FinishReason::UNSPECIFIED},
    {Finish::kStop, api::FinishReason::STOP},
    {Finish::kLength, api::FinishReason::LENGTH},
    {Finish::kCancelled, api::FinishReason::CANCELLED},
    {Finish::kError, api::FinishReason::ERROR},
};

// Our messages begin with the field at fault where there is one: "prompt: ...", "top_p 2 is ...".
std::string field_of(const Status& status) {
  if (status.code != Errc::kInvalid && status.code != Errc::kContextExceeded) return {};
  constexpr std::string_view kFields[] = {"prompt",
                                          "max_tokens",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "repetition_penalty",
                                          "logit_bias",
                                          "logprobs",
                                          "stop",
                                          "stop_tokens",
                                          "cache_salt",
                                          "request_id",
                                          "resumable",
                                          "deadline",
                                          "sampling",
                                          "ids",
                                          "request"};
  // The longest that fits: "stop_tokens" is not "stop".
  std::string_view found;
  for (const std::string_view field : kFields)
    if (status.message.starts_with(field) && field.size() > found.size()) found = field;
  return std::string(found);
}

}  // namespace

api::ErrorCode to_api(Errc code) {
  for (const auto& [ours, theirs] : kCodes)
    if (ours == code) return theirs;
  return api::ErrorCode::INTERNAL;
}

Errc from_api(api::ErrorCode code) {
  for (const auto& [ours, theirs] : kCodes)
    if (theirs == code) return ours;
  return Errc::kUnknown;
}

api::FinishReason to_api(Finish finish) {
  for (const auto& [ours, theirs] : kFinishes)
    if (ours == finish) return theirs;
  return api::FinishReason::UNSPECIFIED;
}

Finish from_api(api::FinishReason finish) {
  for (const auto& [ours, theirs] : kFinishes)
    if (theirs == finish) return ours;
  return Finish::kNone;
}

api::Role to_api(Role role) {
  switch (role) {
    case Role::kPrefill:
      return api::Role::PREFILL;
    case Role::kDecode:
      return api::Role::DECODE;
    case Role::kBoth:
      return api::Role::BOTH;
  }
  return api::Role::UNSPECIFIED;
}

void write(api::Error::Builder to, const Status& status) {
  to.setCode(to_api(status.code));
  to.setMessage(status.message);
  to.setField(field_of(status));
  const bool later = status.code == Errc::kOverloaded || status.code == Errc::kUnavailable;
  to.setRetryAfterMs(later ? kRetryAfterMs : 0);
}

Status read(api::Error::Reader from) {
  std::string message = to_string(from.getMessage());
  if (message.empty()) message = "the coordinator gave no reason";
  return error(from_api(from.getCode()), std::move(message));
}

void write(api::Address::Builder to, const Endpoint& endpoint) {
  to.setHost(endpoint.host);
  to.setPort(endpoint.port);
}

Endpoint read(api::Address::Reader from) { return {to_string(from.getHost()), from.getPort()}; }

void write(api::BlockCounts::Builder to, const BlockCounts& counts) {
  to.setTotal(counts.total);
  to.setFree(counts.free);
  to.setActive(counts.active);
  to.setCached(counts.cached);
  to.setIncoming(counts.incoming);
  to.setPinned(counts.pinned);
  to.setQuarantined(counts.quarantined);
}

BlockCounts read(api::BlockCounts::Reader from) {
  return {from.getTotal(),    from.getFree(),   from.getActive(),     from.getCached(),
          from.getIncoming(), from.getPinned(), from.getQuarantined()};
}

void write(capnp::List<api::Logprobs>::Builder to, const std::vector<Logprobs>& logprobs) {
  for (uint32_t i = 0; i < to.size(); ++i) {
    to[i].setChosen(logprobs[i].chosen);
    auto top = to[i].initTop(static_cast<uint32_t>(logprobs[i].top.size()));
    for (uint32_t j = 0; j < top.size(); ++j) {
      top[j].setId(logprobs[i].top[j].id);
      top[j].setLogprob(logprobs[i].top[j].logprob);
    }
  }
}

std::vector<Logprobs> read(capnp::List<api::Logprobs>::Reader from) {
  std::vector<Logprobs> all;
  all.reserve(from.size());
  for (const auto one : from) {
    Logprobs l;
    l.chosen = one.getChosen();
    for (const auto t : one.getTop()) l.top.push_back({t.getId(), t.getLogprob()});
    all.push_back(std::move(l));
  }
  return all;
}

void write(api::Saturation::Builder to, const Saturation& saturation) {
  to.setBandwidth(saturation.bandwidth);
  to.setCompute(saturation.compute);
  to.setWall(saturation.wall == Wall::kUnknown ? "" : name(saturation.wall));
}

Saturation read(api::Saturation::Reader from) {
  Saturation s{from.getBandwidth(), from.getCompute(), Wall::kUnknown};
  const std::string wall = to_string(from.getWall());
  for (const Wall known : {Wall::kDram, Wall::kCache, Wall::kCompute, Wall::kLink,
                           Wall::kKvCapacity, Wall::kQueue, Wall::kGaps})
    if (wall == name(known)) s.wall = known;
  return s;
}

std::string to_string(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

std::string kj_address(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

Status status_of(const kj::Exception& exception, const std::string& peer) {
  const kj::StringPtr text = exception.getDescription();
  const std::string why(text.begin(), text.size());
  switch (exception.getType()) {
    case kj::Exception::Type::DISCONNECTED:
      return error(Errc::kDisconnected, "lost the connection to " + peer);
    case kj::Exception::Type::OVERLOADED:
      return error(Errc::kOverloaded, peer + ": " + why);
    case kj::Exception::Type::UNIMPLEMENTED:
      return error(Errc::kUnavailable, peer + " does not know this call: run equal versions");
    case kj::Exception::Type::FAILED:
      break;
  }
  return error(Errc::kInternal, peer + ": " + why);
}

}  // namespace headrace

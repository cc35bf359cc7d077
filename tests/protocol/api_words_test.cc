#include "protocol/api_words.h"

#include <capnp/message.h>
#include <doctest/doctest.h>

namespace headrace {

TEST_CASE("codes and finishes survive the way there and back") {
  for (const Errc code : {Errc::kInvalid, Errc::kNotFound, Errc::kOverloaded, Errc::kUnavailable,
                          Errc::kCancelled, Errc::kDeadline, Errc::kDisconnected,
                          Errc::kContextExceeded, Errc::kNumeric, Errc::kInternal})
    CHECK(from_api(to_api(code)) == code);
  CHECK(to_api(Errc::kStale) == api::ErrorCode::INTERNAL);
  CHECK(from_api(api::ErrorCode::UNSPECIFIED) == Errc::kUnknown);
  CHECK(from_api(static_cast<api::ErrorCode>(999)) == Errc::kUnknown);
  for (const Finish f :
       {Finish::kNone, Finish::kStop, Finish::kLength, Finish::kCancelled, Finish::kError})
    CHECK(from_api(to_api(f)) == f);
  CHECK(from_api(static_cast<api::FinishReason>(999)) == Finish::kNone);
}

TEST_CASE("an error names its field") {
  capnp::MallocMessageBuilder message;
  auto e = message.initRoot<api::Error>();
  write(e, error(Errc::kInvalid, "top_p 7 is above 1"));
  CHECK(to_string(e.getField()) == "top_p");
  CHECK(read(e.asReader()) == error(Errc::kInvalid, "top_p 7 is above 1"));
  write(e, error(Errc::kOverloaded, "prompt"));
  CHECK(e.getField().size() == 0);
  CHECK(e.getRetryAfterMs() == 1000);
  write(e, error(Errc::kInvalid, "stop_tokens has 129 ids, the limit is 128"));
  CHECK(to_string(e.getField()) == "stop_tokens");
  CHECK(e.getRetryAfterMs() == 0);
  write(e, error(Errc::kInvalid, "stop[1] is empty"));
  CHECK(to_string(e.getField()) == "stop");
  write(e, error(Errc::kUnavailable, "no worker"));
  CHECK(e.getRetryAfterMs() == 1000);
  capnp::MallocMessageBuilder other;
  CHECK_FALSE(read(other.initRoot<api::Error>().asReader()).message.empty());
}

TEST_CASE("addresses and block counts") {
  CHECK(kj_address({"127.0.0.1", 80}) == "127.0.0.1:80");
  CHECK(kj_address({"::1", 80}) == "[::1]:80");
  capnp::MallocMessageBuilder message;
  auto b = message.initRoot<api::BlockCounts>();
  const BlockCounts counts{1, 2, 3, 4, 5, 6, 7};
  write(b, counts);
  CHECK(read(b.asReader()) == counts);
  capnp::MallocMessageBuilder other;
  auto a = other.initRoot<api::Address>();
  write(a, Endpoint{"h", 9});
  CHECK(read(a.asReader()) == Endpoint{"h", 9});
}

TEST_CASE("logprobs and saturation") {
  capnp::MallocMessageBuilder message;
  auto list = message.initRoot<api::Chunk>().initLogprobs(2);
  const std::vector<Logprobs> logprobs{{-0.5f, {{7, -0.5f}, {9, -2}}}, {-1, {}}};
  write(list, logprobs);
  CHECK(read(list.asReader()) == logprobs);
  capnp::MallocMessageBuilder other;
  auto s = other.initRoot<api::Saturation>();
  for (const Wall wall : {Wall::kUnknown, Wall::kDram, Wall::kGaps}) {
    const Saturation saturation{0.5, 0.25, wall};
    write(s, saturation);
    CHECK(read(s.asReader()) == saturation);
  }
  s.setWall("a newer word");
  CHECK(read(s.asReader()).wall == Wall::kUnknown);
}

TEST_CASE("exceptions of the RPC system become outcomes") {
  const auto of = [](kj::Exception::Type type) {
    return status_of(kj::Exception(type, "f", 1, kj::str("why")), "peer");
  };
  CHECK(of(kj::Exception::Type::DISCONNECTED).code == Errc::kDisconnected);
  CHECK(of(kj::Exception::Type::OVERLOADED).code == Errc::kOverloaded);
  CHECK(of(kj::Exception::Type::UNIMPLEMENTED).code == Errc::kUnavailable);
  CHECK(of(kj::Exception::Type::FAILED) == error(Errc::kInternal, "peer: why"));
}

}  // namespace headrace

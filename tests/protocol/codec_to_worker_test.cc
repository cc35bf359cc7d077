#include <doctest/doctest.h>

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <bit>
#include <cmath>

#include "protocol/limits.h"
#include "protocol/mesh.capnp.h"
#include "tests/protocol/codec_samples.h"

namespace headrace {
namespace {

TEST_CASE("every message to a worker comes back as it went") {
  for (const ToWorker& message : sample_to_worker()) {
    CAPTURE(message.index());
    const auto back = decode_to_worker(encode(message));
    REQUIRE_MESSAGE(back, (back ? "" : back.error().message));
    CHECK(*back == message);
  }
}

TEST_CASE("every kind is among the samples") {
  std::vector<bool> seen(std::variant_size_v<ToWorker>);
  for (const ToWorker& message : sample_to_worker()) seen[message.index()] = true;
  for (bool s : seen) CHECK(s);
}

TEST_CASE("NaN travels bit by bit") {
  to_worker::Prepare prepare;
  prepare.sampling.temperature = std::bit_cast<float>(0x7FC12345u);
  prepare.sampling.top_p = -std::numeric_limits<float>::infinity();
  prepare.sampling.repetition_penalty = std::bit_cast<float>(0xFFC00001u);
  prepare.sampling.bias = {{1, std::bit_cast<float>(0x7FC00077u)}};
  const auto back = decode_to_worker(encode(ToWorker{prepare}));
  REQUIRE(back);
  const auto& sampling = std::get<to_worker::Prepare>(*back).sampling;
  CHECK(std::bit_cast<uint32_t>(sampling.temperature) == 0x7FC12345u);
  CHECK(sampling.top_p == -std::numeric_limits<float>::infinity());
  CHECK(std::bit_cast<uint32_t>(sampling.repetition_penalty) == 0xFFC00001u);
  REQUIRE(sampling.bias.size() == 1);
  CHECK(std::bit_cast<uint32_t>(sampling.bias[0].bias) == 0x7FC00077u);
}

// Fields are added at the end: a message of an older peer lacks them and reads as by default.
TEST_CASE("what a message does not have reads as the default") {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<wire::ToWorker>().initPrepare();
  const auto array = capnp::messageToFlatArray(builder);
  const auto back =
      decode_to_worker(std::as_bytes(std::span(array.asBytes().begin(), array.asBytes().size())));
  REQUIRE(back);
  to_worker::Prepare wanted;
  wanted.sampling.top_p = 0;  // has no default on the wire
  CHECK(std::get<to_worker::Prepare>(*back) == wanted);
}

TEST_CASE("the longest prompt passes, one more token is refused by name") {
  to_worker::Prepare prepare;
  prepare.prompt.assign(limits::kPromptTokens, 1);
  CHECK(decode_to_worker(encode(ToWorker{prepare})));
  prepare.prompt.push_back(1);
  const auto back = decode_to_worker(encode(ToWorker{prepare}));
  REQUIRE_FALSE(back);
  CHECK(back.error() ==
        Status{Errc::kInvalid, "Prepare.prompt: 1048577 entries, the limit is 1048576"});
}

TEST_CASE("other lists have limits, too") {
  const auto why = [](const ToWorker& message) {
    const auto back = decode_to_worker(encode(message));
    return back ? std::string() : back.error().message;
  };
  to_worker::Ping ping;
  ping.live.resize(limits::kTransfers + 1);
  CHECK(why(ping) == "Ping.live: 4097 entries, the limit is 4096");
  to_worker::Start start;
  start.grant.blocks.resize(limits::kBlocks + 1);
  CHECK(why(start) == "Start.blocks: 65537 entries, the limit is 65536");
  start = {};
  start.grant.endpoint.host = std::string(limits::kStringBytes + 1, 'h');
  CHECK(why(start) == "Start.endpoint: 65537 bytes, the limit is 65536");
  to_worker::Prepare prepare;
  prepare.end_tokens.resize(limits::kEndTokens + 1);
  CHECK(why(prepare) == "Prepare.endTokens: 4097 entries, the limit is 4096");
  prepare = {};
  prepare.sampling.bias.resize(limits::kLogitBias + 1);
  CHECK(why(prepare) == "Prepare.sampling.bias: 1025 entries, the limit is 1024");
  prepare = {};
  prepare.sampling.logprobs = limits::kLogprobs + 1;
  CHECK(why(prepare) == "Prepare.sampling.logprobs: 21 entries, the limit is 20");
}

TEST_CASE("our own durations and reasons are cut to what a peer takes") {
  const auto back =
      decode_to_worker(encode(ToWorker{to_worker::Welcome{Term{1}, WorkerId{2}, Duration::max()}}));
  REQUIRE(back);
  CHECK(std::get<to_worker::Welcome>(*back).beat_every == limits::kDuration);
  const auto long_why = decode_to_worker(
      encode(ToWorker{to_worker::Rejected{error(Errc::kInvalid, std::string(1'000'000, 'w'))}}));
  REQUIRE(long_why);
  CHECK(std::get<to_worker::Rejected>(*long_why).why.message.size() == limits::kStringBytes);
}

TEST_CASE("cut and mutated messages never do harm") {
  for (const ToWorker& message : sample_to_worker()) {
    const Bytes frame = encode(message);
    if (frame.size() > 4000) continue;
    const size_t refused = torture(frame, 2000, [](auto bytes) {
      const auto back = decode_to_worker(bytes);
      return back ? Status{} : back.error();
    });
    CHECK(refused > 0);
  }
}

}  // namespace
}  // namespace headrace

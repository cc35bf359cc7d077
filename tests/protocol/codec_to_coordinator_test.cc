#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "protocol/limits.h"
#include "tests/protocol/codec_samples.h"

namespace headrace {
namespace {

TEST_CASE("every message to the coordinator comes back as it went") {
  std::vector<bool> seen(std::variant_size_v<ToCoordinator>);
  for (const ToCoordinator& message : sample_to_coordinator()) {
    CAPTURE(message.index());
    seen[message.index()] = true;
    const auto back = decode_to_coordinator(encode(message));
    REQUIRE_MESSAGE(back, (back ? "" : back.error().message));
    CHECK(*back == message);
  }
  for (bool s : seen) CHECK(s);
}

TEST_CASE("lists, pieces and enumerations past their limits are refused by name") {
  using namespace to_coordinator;
  const auto why = [](const ToCoordinator& message) {
    const auto back = decode_to_coordinator(encode(message));
    if (back) return std::string();
    CHECK(back.error().code == Errc::kInvalid);
    return back.error().message;
  };
  Tokens tokens;
  tokens.runs.resize(limits::kRuns + 1);
  CHECK(why(tokens) == "Tokens.runs: 4097 entries, the limit is 4096");
  tokens.runs.resize(2);
  tokens.runs[1].ids.resize(limits::kRunTokens + 1);
  CHECK(why(tokens) == "Tokens.runs.ids: 4097 entries, the limit is 4096");
  tokens.runs[1] = {};
  tokens.runs[1].finish = static_cast<Finish>(9);
  CHECK(why(tokens) == "Tokens.runs.finish: unknown finish 9");
  Register reg;
  reg.role = static_cast<Role>(7);
  CHECK(why(reg) == "Register.role: unknown role 7");
  reg.role = Role::kDecode;
  reg.limits.read.resize(limits::kReadPoints + 1);
  CHECK(why(reg) == "Register.limits.read: 17 entries, the limit is 16");
  reg.limits.read.clear();
  reg.card.name = std::string(limits::kStringBytes + 1, 'n');
  CHECK(why(reg) == "Register.card.name: 65537 bytes, the limit is 65536");
  Beat beat;
  beat.transfers.resize(limits::kTransfers + 1);
  CHECK(why(beat) == "Beat.transfers: 4097 entries, the limit is 4096");
  beat = {};
  beat.prefix_events.resize(limits::kPrefixEvents + 1);
  CHECK(why(beat) == "Beat.prefixEvents: 4097 entries, the limit is 4096");
  beat.prefix_events = {{}, {static_cast<PrefixEvent::Kind>(3), 1}};
  CHECK(why(beat) == "Beat.prefixEvents: unknown kind 3");
  TokenizerPiece piece;
  piece.bytes.resize(limits::kPieceBytes + 1);
  CHECK(why(piece) == "TokenizerPiece.bytes: 1048577 bytes, the limit is 1048576");
}

TEST_CASE("log-probabilities come for each id or not at all, few and finite") {
  const auto why = [](const std::vector<Logprobs>& logprobs) {
    to_coordinator::TokenRun run;
    run.ids = {1, 2};
    run.logprobs = logprobs;
    const auto back = decode_to_coordinator(encode(to_coordinator::Tokens{{run}}));
    if (back) CHECK(std::get<to_coordinator::Tokens>(*back).runs[0] == run);
    return back ? std::string() : back.error().message;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<TokenLogprob> many(limits::kLogprobs);
  CHECK(why({}) == "");
  CHECK(why({{-1, {}}, {-2, many}}) == "");
  CHECK(why({{-1, {}}}) == "Tokens.runs.logprobs: 1 entries for 2 ids");
  CHECK(why({{}, {}, {}}) == "Tokens.runs.logprobs: 3 entries for 2 ids");
  CHECK(why({{nan, {}}, {}}) == "Tokens.runs.logprobs: nan is not finite");
  CHECK(why({{}, {-1, {{3, -inf}}}}) == "Tokens.runs.logprobs: -inf is not finite");
  CHECK(why({{}, {0, std::vector<TokenLogprob>(limits::kLogprobs + 1)}}) ==
        "Tokens.runs.logprobs: 21 entries, the limit is 20");
}

// A beat tells how a machine does; figures beyond reason are for the reader to judge.
TEST_CASE("a beat with absurd figures is read as it is") {
  to_coordinator::Beat beat;
  beat.prefill = {std::numeric_limits<double>::quiet_NaN(), -1e308, static_cast<Wall>(200)};
  beat.decode = {1e308, std::numeric_limits<double>::infinity(), Wall::kQueue};
  beat.blocks = {1, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF};
  const auto back = decode_to_coordinator(encode(beat));
  REQUIRE(back);
  const auto& read = std::get<to_coordinator::Beat>(*back);
  CHECK(std::isnan(read.prefill.bandwidth));
  CHECK(read.prefill.compute == -1e308);
  CHECK(read.prefill.wall == Wall::kUnknown);  // a number of a newer peer
  CHECK(read.decode == beat.decode);
  CHECK(read.blocks == beat.blocks);
}

TEST_CASE("cut and mutated messages never do harm") {
  for (const ToCoordinator& message : sample_to_coordinator()) {
    const Bytes frame = encode(message);
    if (frame.size() > 4000) continue;
    const size_t refused = torture(frame, 2000, [](auto bytes) {
      const auto back = decode_to_coordinator(bytes);
      return back ? Status{} : back.error();
    });
    CHECK(refused > 0);
  }
}

}  // namespace
}  // namespace headrace

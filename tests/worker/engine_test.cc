#include "worker/engine.h"

#include <doctest/doctest.h>

namespace headrace::worker {
namespace {

StepSequence of(std::optional<uint32_t> follows, Token token, std::vector<Token> ends = {}) {
  StepSequence s;
  s.tokens = {token};
  s.follows = follows;
  s.end_tokens = std::move(ends);
  return s;
}

TEST_CASE("sampled tokens go where they are wanted, and nowhere else") {
  Step step{{of(2, 0), of({}, 7), of(0, 0, {6, 8})}};
  const std::vector<Token> sampled{5, -1, 4};
  CHECK(follow(step, sampled));
  CHECK(step.sequences[0].tokens == std::vector<Token>{4});
  CHECK(step.sequences[1].tokens == std::vector<Token>{7});
  CHECK(step.sequences[2].tokens == std::vector<Token>{5});
}

TEST_CASE("what ends an answer that goes on in the prepared step stops it") {
  const auto runs = [](Step step, std::vector<Token> sampled) { return follow(step, sampled); };
  CHECK(runs({{of(1, 0, {9})}}, {9, 3}));
  CHECK_FALSE(runs({{of(1, 0, {9, 3})}}, {9, 3}));
  CHECK_FALSE(runs({{of(0, 0), of(1, 0)}}, {9, StepDone::kNumeric}));
  CHECK(runs({{of(0, 0)}}, {9, StepDone::kNumeric}));  // nobody goes on from that one
  CHECK(runs({{of({}, 3, {3})}}, {3}));                // a token that was known
}

}  // namespace
}  // namespace headrace::worker

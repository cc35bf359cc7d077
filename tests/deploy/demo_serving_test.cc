#include "deploy/cli/demo_serving.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace headrace::cli {
namespace {

uint64_t answers(const std::vector<DemoAsk>& asks) {
  uint64_t sum = 0;
  for (const DemoAsk& ask : asks) sum += ask.answer;
  return sum;
}

TEST_CASE("a mix is the same for a seed and keeps its range") {
  const DemoMix mix{.count = 200,
                    .prompt_min = 16,
                    .prompt_max = 1024,
                    .answer_min = 8,
                    .answer_max = 8,
                    .seed = 5};
  const auto asks = demo_asks(mix);
  REQUIRE(asks.size() == 200);
  size_t below = 0;
  for (const DemoAsk& ask : asks) {
    CHECK(ask.prompt >= 16);
    CHECK(ask.prompt <= 1024);
    CHECK(ask.answer == 8);
    below += ask.prompt < 128;
  }
  // 128 is the middle of the factors, not of the lengths.
  CHECK(below > 70);
  CHECK(below < 130);
  DemoMix other = mix;
  CHECK(demo_asks(other)[7].prompt == asks[7].prompt);
  other.seed = 6;
  CHECK(!std::equal(asks.begin(), asks.end(), demo_asks(other).begin(),
                    [](const DemoAsk& a, const DemoAsk& b) { return a.prompt == b.prompt; }));
}

TEST_CASE("static and continuous batches, counted by hand") {
  const std::vector<DemoAsk> asks = {{4, 2}, {4, 8}, {4, 3}, {4, 3}};
  DemoPolicy policy{.blocks = 64, .context = 64, .slots = 2};
  policy.waits_for_all = true;
  // 8 steps for {2, 8}, 3 for {3, 3}.
  CHECK(serve_demo(asks, policy).steps == 11);
  CHECK(predict_demo(asks, policy).steps == 11);
  CHECK(serve_demo(asks, policy).idle == doctest::Approx(1 - 16.0 / 22));
  policy.waits_for_all = false;
  // {2, 3, 3} beside {8}.
  const DemoOutcome filled = serve_demo(asks, policy);
  CHECK(filled.steps == 8);
  CHECK(filled.tokens == 16);
  CHECK(filled.idle == doctest::Approx(0));
  CHECK(filled.full_steps == 0);
  CHECK(predict_demo(asks, policy).steps == 8);
}

TEST_CASE("continuous batches idle no more than static ones, whatever the mix") {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const auto asks = demo_asks({.count = 60,
                                 .prompt_min = 8,
                                 .prompt_max = 8,
                                 .answer_min = 1,
                                 .answer_max = 60,
                                 .seed = seed});
    DemoPolicy policy{.blocks = 64, .context = 128, .slots = 8, .token_budget = 64};
    const DemoOutcome filled = serve_demo(asks, policy);
    CHECK(filled.steps == predict_demo(asks, policy).steps);
    policy.waits_for_all = true;
    const DemoOutcome waiting = serve_demo(asks, policy);
    CHECK(waiting.steps == predict_demo(asks, policy).steps);
    CHECK(filled.idle <= waiting.idle);
    CHECK(filled.tokens == answers(asks));
    CHECK(waiting.tokens == answers(asks));
  }
}

TEST_CASE("pages admit more than whole contexts, and waste less") {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto asks = demo_asks({.count = 80,
                                 .prompt_min = 16,
                                 .prompt_max = 256,
                                 .answer_min = 8,
                                 .answer_max = 128,
                                 .seed = seed});
    DemoPolicy policy{.blocks = 128, .context = 1024};
    const DemoOutcome pages = serve_demo(asks, policy);
    policy.contiguous = true;
    const DemoOutcome whole = serve_demo(asks, policy);
    CHECK(whole.admitted == 4);  // 4,096 tokens of room
    CHECK(whole.preempted == 0);
    CHECK(predict_demo(asks, policy).admitted == doctest::Approx(4));
    CHECK(pages.admitted > whole.admitted);
    CHECK(pages.waste < whole.waste);
    CHECK(pages.tokens == answers(asks));
    CHECK(whole.tokens == answers(asks));
  }
}

TEST_CASE("answers past what was promised are preempted and still end") {
  // Two sequences whose promises fit, and whose ends do not.
  const std::vector<DemoAsk> asks = {{32, 600}, {32, 600}};
  const DemoPolicy policy{.blocks = 24, .context = 640};
  const DemoOutcome out = serve_demo(asks, policy);
  CHECK(out.preempted >= 1);
  CHECK(out.tokens == 1200);
}

}  // namespace
}  // namespace headrace::cli

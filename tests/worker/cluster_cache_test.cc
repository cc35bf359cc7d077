// Hits in the prefix cache, preemption and migration change no bit (served.h): the same tokens, KV
// and logits as alone on a worker that caches nothing.
#include "tests/worker/served.h"

namespace headrace::worker {
namespace {

Subject cpu(const char* model = "tiny/q8_0.gguf") { return {open_model(test_model(model))}; }

// Every length around blocks (16) and attention slices (256).
std::vector<RealRequest> every_length() {
  return beginnings({300, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100, 255, 256, 257, 272, 273},
                    6);
}

TEST_CASE("hits of every length change no bit, on one worker and on both sides of a hand-off") {
  const auto requests = every_length();
  const Served want = alone(cpu(), requests);
  for (const RealAnswer& a : want.answers) CHECK(a.cached_tokens == 0);
  for (const bool remote : {false, true}) {
    for (const uint32_t budget : {16u, 512u}) {
      if (kSanitized && remote != (budget == 16)) continue;
      CAPTURE(remote);
      CAPTURE(budget);
      RealOptions o = pool(remote ? 1 : 0);
      o.tcp = remote;
      o.token_budget = budget;
      check_hits(cpu(), requests, want, o);
    }
  }
}

TEST_CASE("in a batch, and with other salts, too") {
  auto requests = every_length();
  const Served want = alone(cpu(), requests);
  for (size_t i = 0; i < requests.size(); i += 3) requests[i].salt = "tenant";
  RealOptions o = pool(1);
  o.batch = 12;
  o.token_budget = 64;
  check_same(serve(cpu(), o, requests), want);
}

// H13: a prompt that is wholly cached and ends with a block still has something to compute.
TEST_CASE("a prompt of three full blocks, then its beginnings, each twice") {
  const Subject base = cpu("tiny/base.gguf");
  const auto right = read_json(test_model("tiny/base.json"));
  const auto prompt = right["prompt_ids"].get<std::vector<Token>>();
  REQUIRE(prompt.size() == 48);
  std::vector<RealRequest> requests;
  for (const size_t n : {48u, 48u, 47u, 47u, 32u, 32u, 16u, 16u, 1u, 1u}) {
    requests.push_back(request({prompt.begin(), prompt.begin() + static_cast<long>(n)}, 16, 2 * n));
  }
  const Served want = alone(base, requests);
  const auto greedy = right["greedy_ids"].get<std::vector<Token>>();
  CHECK(want.answers[0].ids == greedy);
  for (const bool remote : {false, true}) {
    CAPTURE(remote);
    const Served got = serve(base, pool(remote ? 1 : 0), requests);
    check_same(got, want);
    CHECK(got.answers[1].ids == greedy);
    CHECK(got.answers[1].cached_tokens == 32);
    CHECK(got.answers[3].cached_tokens == 32);
    CHECK(got.answers[5].cached_tokens == 16);
    CHECK(got.answers[7].cached_tokens == 0);
    CHECK(got.answers[9].cached_tokens == 0);
  }
}

TEST_CASE("preemption changes no bit") {
  const auto requests = long_answers(3, 400);
  const Served want = alone(cpu(), requests);
  for (const bool cache : {true, false})  // two begin with 18 blocks each and want 27
    check_preemption(cpu(), requests, want, 40, cache);
}

TEST_CASE("an answer goes on elsewhere when its worker dies, and no bit of it changes") {
  const auto requests = long_answers(4, 150);
  const Served want = alone(cpu(), requests);
  for (const uint32_t prefill : {0u, 2u}) check_death(cpu(), requests, want, prefill, 30);
}

// H22: what penalties count does not depend on where and how often a sequence was begun.
TEST_CASE("penalties say the same after a hand-over, a preemption and a replay") {
  const Subject script = cpu("script/base.gguf");
  const std::string text = "1(1(1(";
  const std::vector<Token> prompt(text.begin(), text.end());
  struct Case {
    float presence, frequency, repetition;
    std::string digits;
  };
  std::vector<RealRequest> requests;
  const std::vector<Case> cases = {
      {0, 0, 1, "111111"}, {2, 0, 1, "123111"}, {0, 1, 1, "121321"}, {0, 0, 1.5f, "211111"}};
  for (const Case& c : cases) {
    RealRequest r = request(prompt, 400, 2 * requests.size());
    r.sampling.presence_penalty = c.presence;
    r.sampling.frequency_penalty = c.frequency;
    r.sampling.repetition_penalty = c.repetition;
    requests.push_back(std::move(r));
  }
  const Served want = alone(script, requests);
  for (size_t i = 0; i < cases.size(); ++i) {
    // The tokens after each bracket, the prompt's last one first.
    std::string digits;
    Token before = '(';
    for (const Token t : want.answers[i].ids) {
      if (before == '(' && digits.size() < 6) digits += static_cast<char>(t);
      before = t;
    }
    CHECK(digits == cases[i].digits);
  }
  RealOptions o;
  o.batch = 4;
  o.both = 1;
  o.blocks = 40;
  const Served preempted = serve(script, o, requests);
  check_same(preempted, want);
  CHECK(preempted.preemptions > 0);
  RealOptions handed;
  handed.batch = 4;
  handed.prefill = 1;
  handed.decode = 2;
  handed.kill_after = 50;
  handed.victim = 1;
  check_same(serve(script, handed, requests), want);
}

}  // namespace
}  // namespace headrace::worker

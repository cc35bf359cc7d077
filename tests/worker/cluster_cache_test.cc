#include <algorithm>

#include "tests/worker/model_support.h"
#include "tests/worker/real_cluster.h"

// Hits in the prefix cache, preemption and migration change no bit of an answer: the same tokens,
// KV and logits as alone on a worker that caches nothing.
namespace headrace::worker {
namespace {

struct Outcome {
  std::vector<RealAnswer> answers;
  RecordingEngine::Log logits;
  bool contradicted = false;
  std::vector<uint64_t> admitted;
  uint64_t preemptions = 0;
};

Outcome serve(const std::shared_ptr<const ModelFile>& file, const RealOptions& options,
              const std::vector<RealRequest>& requests) {
  RealCluster cluster(file, options);
  REQUIRE(cluster.all_joined());
  Outcome out;
  out.answers = cluster.ask(requests);
  REQUIRE(out.answers.size() == requests.size());
  out.logits = cluster.logits();
  out.contradicted = cluster.contradicted();
  for (size_t i = 0; i < options.prefill + options.decode + options.both; ++i) {
    out.admitted.push_back(cluster.counted(i).admitted);
    out.preemptions += cluster.counted(i).preemptions;
  }
  return out;
}

// One at a time on a worker of its own, without a cache.
Outcome alone(const std::shared_ptr<const ModelFile>& file,
              const std::vector<RealRequest>& requests) {
  RealOptions o;
  o.both = 1;
  o.cache = false;
  return serve(file, o, requests);
}

void check_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    CAPTURE(i);
    CHECK_MESSAGE(got.answers[i].status.ok(), got.answers[i].status.message);
    CHECK(got.answers[i].ids == want.answers[i].ids);
    CHECK(got.answers[i].finish == want.answers[i].finish);
    CHECK(got.answers[i].kv == want.answers[i].kv);
    CHECK(static_cast<bool>(got.answers[i].kv));
  }
  CHECK(got.logits == want.logits);
  CHECK(!got.contradicted);
}

std::shared_ptr<const ModelFile> model() {
  static const auto file = open_model(test_model("tiny/q8_0.gguf"));
  return file;
}

std::vector<Token> some_tokens(uint64_t seed, size_t n) {
  SeededRandom random(seed);
  std::vector<Token> all(n);
  for (auto& t : all) t = static_cast<Token>(random.next() % 256);
  return all;
}

RealRequest request(std::vector<Token> prompt, uint32_t max_tokens, uint64_t seed) {
  RealRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.seed = seed;
  if (seed % 2 == 1) r.sampling.temperature = 0.9f;
  return r;
}

// Beginnings of one text of every length around blocks (16) and attention slices (256), some with
// an end of their own, each twice.
std::vector<RealRequest> beginnings() {
  const auto text = some_tokens(42, 300);
  std::vector<RealRequest> all;
  for (const uint32_t n : {300u, 1u, 2u, 15u, 16u, 17u, 31u, 32u, 33u, 47u, 48u, 49u, 100u, 255u,
                           256u, 257u, 272u, 273u}) {
    auto prompt = text;
    prompt.resize(n);
    if (n % 3 == 0) prompt.back() ^= 1;
    for (int twice = 0; twice < 2; ++twice) all.push_back(request(prompt, 6, 1000 + n));
  }
  return all;
}

TEST_CASE("hits of every length change no bit, on one worker and on both sides of a hand-off") {
  const auto requests = beginnings();
  const Outcome want = alone(model(), requests);
  for (const RealAnswer& a : want.answers) CHECK(a.cached_tokens == 0);
  for (const bool remote : {false, true}) {
    for (const uint32_t budget : {16u, 512u}) {
      if (kSanitized && remote != (budget == 16)) continue;
      CAPTURE(remote);
      CAPTURE(budget);
      RealOptions o;
      o.prefill = o.decode = remote ? 1 : 0;
      o.both = remote ? 0 : 1;
      o.tcp = remote;
      o.token_budget = budget;
      const Outcome got = serve(model(), o, requests);
      check_same(got, want);
      for (size_t i = 1; i < requests.size(); i += 2) {
        CAPTURE(i);
        CHECK(got.answers[i].cached_tokens == (requests[i].prompt.size() - 1) / 16 * 16);
      }
    }
  }
}

TEST_CASE("in a batch, and with other salts, too") {
  auto requests = beginnings();
  const Outcome want = alone(model(), requests);
  for (size_t i = 0; i < requests.size(); i += 3) requests[i].salt = "tenant";
  RealOptions o;
  o.prefill = 1;
  o.decode = 1;
  o.batch = 12;
  o.token_budget = 64;
  check_same(serve(model(), o, requests), want);
}

// H13: a prompt that is wholly cached and ends with a block still has something to compute.
TEST_CASE("a prompt of three full blocks, then its beginnings, each twice") {
  const auto file = open_model(test_model("tiny/base.gguf"));
  const auto right = read_json(test_model("tiny/base.json"));
  const auto prompt = right["prompt_ids"].get<std::vector<Token>>();
  REQUIRE(prompt.size() == 48);
  std::vector<RealRequest> requests;
  for (const size_t n : {48u, 48u, 47u, 47u, 32u, 32u, 16u, 16u, 1u, 1u}) {
    requests.push_back(request({prompt.begin(), prompt.begin() + static_cast<long>(n)}, 16, 2 * n));
  }
  const Outcome want = alone(file, requests);
  const auto greedy = right["greedy_ids"].get<std::vector<Token>>();
  CHECK(want.answers[0].ids == greedy);
  for (const bool remote : {false, true}) {
    CAPTURE(remote);
    RealOptions o;
    o.prefill = o.decode = remote ? 1 : 0;
    o.both = remote ? 0 : 1;
    const Outcome got = serve(file, o, requests);
    check_same(got, want);
    CHECK(got.answers[1].ids == greedy);
    CHECK(got.answers[1].cached_tokens == 32);
    CHECK(got.answers[3].cached_tokens == 32);
    CHECK(got.answers[5].cached_tokens == 16);
    CHECK(got.answers[7].cached_tokens == 0);
    CHECK(got.answers[9].cached_tokens == 0);
  }
}

std::vector<RealRequest> long_answers(uint32_t n, uint32_t tokens) {
  std::vector<RealRequest> all;
  for (uint32_t i = 0; i < n; ++i) all.push_back(request(some_tokens(i, 20 + i), tokens, 77 + i));
  return all;
}

TEST_CASE("preemption changes no bit") {
  const auto requests = long_answers(3, 400);
  const Outcome want = alone(model(), requests);
  for (const bool cache : {true, false}) {
    CAPTURE(cache);
    RealOptions o;
    o.both = 1;
    o.batch = 3;
    o.blocks = 40;  // two begin with 18 each and want 27
    o.cache = cache;
    const Outcome got = serve(model(), o, requests);
    check_same(got, want);
    CHECK(got.preemptions > 0);
  }
}

TEST_CASE("an answer goes on elsewhere when its worker dies, and no bit of it changes") {
  const auto requests = long_answers(4, 150);
  const Outcome want = alone(model(), requests);
  for (const bool remote : {false, true}) {
    CAPTURE(remote);
    RealOptions o;
    o.prefill = o.decode = remote ? 2 : 0;
    o.both = remote ? 0 : 2;
    o.batch = 4;
    o.kill_after = 30;
    o.victim = remote ? 2 : 0;  // one who decodes
    const Outcome got = serve(model(), o, requests);
    check_same(got, want);
    CHECK(got.admitted[o.victim] > 0);  // so it had something to lose
    CHECK(got.admitted[o.victim + 1] > 0);
  }
}

// H22: what penalties count does not depend on where and how often a sequence was begun.
TEST_CASE("penalties say the same after a hand-over, a preemption and a replay") {
  const auto file = open_model(test_model("script/base.gguf"));
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
  const Outcome want = alone(file, requests);
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
  const Outcome preempted = serve(file, o, requests);
  check_same(preempted, want);
  CHECK(preempted.preemptions > 0);
  RealOptions handed;
  handed.batch = 4;
  handed.prefill = 1;
  handed.decode = 2;
  handed.kill_after = 50;
  handed.victim = 1;
  check_same(serve(file, handed, requests), want);
}

}  // namespace
}  // namespace headrace::worker

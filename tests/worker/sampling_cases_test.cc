// How tokens are chosen, end to end over the script model, after whose "(" come 1, 2, 3 and 4 with
// probabilities .5, .3, .15 and .05, and after any of them "(" again: temperatures, truncation,
// seeds, bias and penalties, in batches and after replays.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/worker/model_support.h"
#include "worker/penalties.h"

namespace headrace::worker {
namespace {

using Tokens = std::vector<Token>;

struct Ask {
  std::string prompt = "(";
  Sampling sampling{};
  size_t tokens = 1;
  uint32_t generated = 0;  // of the prompt's last tokens
};

struct Said {
  Tokens ids;
  std::vector<Logprobs> logprobs;  // of each, if asked for
};

std::unique_ptr<ModelEngine> script(std::unique_ptr<kernels::Device> device, uint32_t blocks = 64) {
  EngineOptions options;
  options.blocks = blocks;
  return make_engine(open_model(test_model("script/base.gguf")), std::move(device), options);
}

std::unique_ptr<ModelEngine> script(uint32_t blocks = 64) {
  return script(kernels::make_cpu_device(kernels::best_cpu_path(), 2), blocks);
}

// Answers all together, a step for one token of each.
std::vector<Said> say(ModelEngine& engine, const std::vector<Ask>& asks) {
  const uint32_t block = engine.card().block_tokens;
  std::vector<Said> said(asks.size());
  std::vector<Tokens> known;
  std::vector<Penalties> penalties;
  Step all;
  uint32_t next_block = 0;
  for (const Ask& ask : asks) {
    known.push_back(bytes_of(ask.prompt));
    const auto length = static_cast<uint32_t>(known.back().size());
    penalties.emplace_back(ask.sampling, length - ask.generated);
    StepSequence s;
    for (uint32_t at = 0; at < length + ask.tokens; at += block) s.blocks.push_back(next_block++);
    s.tokens = known.back();
    s.sample = true;
    s.sampling = ask.sampling;
    s.index = ask.generated;
    all.sequences.push_back(std::move(s));
  }
  for (;;) {
    std::vector<size_t> who;
    Step step;
    for (size_t i = 0; i < asks.size(); i++) {
      if (said[i].ids.size() == asks[i].tokens) continue;
      all.sequences[i].edits = penalties[i].edits(known[i]);
      who.push_back(i);
      step.sequences.push_back(all.sequences[i]);
    }
    if (who.empty()) return said;
    const StepDone done = run(engine, step);
    for (size_t k = 0; k < who.size(); k++) {
      const size_t i = who[k];
      const Token token = done.sampled[k];
      REQUIRE(token >= 0);
      said[i].ids.push_back(token);
      if (!done.logprobs.empty()) said[i].logprobs.push_back(done.logprobs[k]);
      known[i].push_back(token);
      StepSequence& s = all.sequences[i];
      s.position += static_cast<uint32_t>(s.tokens.size());
      s.tokens = {token};
      s.index++;
    }
  }
}

Said say(ModelEngine& engine, const Ask& ask) { return say(engine, std::vector<Ask>{ask})[0]; }

std::string text(const Tokens& ids) {
  std::string out;
  for (const Token id : ids) out += static_cast<char>(id);
  return out;
}

// How often each character came in `draws` first tokens, each under a seed of its own.
std::map<char, double> draws(ModelEngine& engine, const Sampling& sampling, uint32_t n) {
  std::map<char, double> count;
  for (uint32_t from = 0; from < n; from += 200) {
    std::vector<Ask> asks(std::min(200u, n - from));
    for (size_t i = 0; i < asks.size(); i++) {
      asks[i].sampling = sampling;
      asks[i].sampling.seed = 1000 + from + i;
    }
    for (const Said& s : say(engine, asks)) count[static_cast<char>(s.ids[0])] += 1.0 / n;
  }
  return count;
}

std::string seen(const std::map<char, double>& count) {
  std::string out;
  for (const auto& [c, share] : count) out += c;
  return out;
}

TEST_CASE("a vanishing temperature is greedy, with finite log-probabilities") {
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    const auto engine = script(std::move(d.device));
    for (const float temperature : {0.0f, 1e-38f, 1e-6f, 1e-4f}) {
      CAPTURE(temperature);
      for (uint64_t seed = 0; seed < 8; seed++) {
        Ask ask;
        ask.sampling.temperature = temperature;
        ask.sampling.seed = seed;
        ask.sampling.logprobs = 20;
        const Said said = say(*engine, ask);
        CHECK(text(said.ids) == "1");
        REQUIRE(said.logprobs.size() == 1);
        const Logprobs& l = said.logprobs[0];
        CHECK(l.chosen == doctest::Approx(std::log(.5)).epsilon(1e-4));
        REQUIRE(l.top.size() == 20);
        const double p[] = {.5, .3, .15, .05};
        for (size_t i = 0; i < 20; i++) {
          CHECK(std::isfinite(l.top[i].logprob));
          if (i >= 4) continue;
          CHECK(l.top[i].id == static_cast<Token>('1' + i));
          CHECK(l.top[i].logprob == doctest::Approx(std::log(p[i])).epsilon(1e-4));
        }
      }
    }
  }
}

TEST_CASE("top-k and top-p keep what they name") {
  const auto engine = script(200);
  const auto kept = [&](int32_t top_k, float top_p) {
    return draws(*engine, {.temperature = 1, .top_k = top_k, .top_p = top_p}, 400);
  };
  for (const int32_t all : {9999999, 0, -1}) CHECK(seen(kept(all, 1)) == "1234");
  CHECK(seen(kept(1, 1)) == "1");
  CHECK(seen(kept(2, 1)) == "12");
  CHECK(seen(kept(0, .49f)) == "1");
  auto best_two = kept(0, .79f);
  CHECK(seen(best_two) == "12");
  CHECK(std::abs(best_two['1'] - 5.0 / 8) < .05);
}

TEST_CASE("a batch of all kinds gives each what it gets alone") {
  const auto engine = script();
  std::vector<Ask> asks(6);
  for (size_t i = 0; i < asks.size(); i++) asks[i].tokens = 20;
  asks[0].sampling = {.temperature = 1, .top_k = 64, .seed = 5};
  asks[2].sampling = {.temperature = 1, .top_p = .79f, .seed = 6};
  asks[3].sampling = {.temperature = 1, .seed = 7, .frequency_penalty = 1};
  asks[4].sampling.bias = {{'1', -100}};
  asks[4].sampling.logprobs = 3;
  asks[5].sampling.repetition_penalty = 1.5f;
  const auto together = say(*engine, asks);
  for (size_t i = 0; i < asks.size(); i++) {
    CAPTURE(i);
    const Said alone = say(*engine, asks[i]);
    CHECK(alone.ids == together[i].ids);
    if (i == 4) CHECK(alone.logprobs == together[i].logprobs);
  }
}

TEST_CASE("a bias moves the choice and shows in the log-probabilities") {
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    const auto engine = script(std::move(d.device));
    Ask ask;
    ask.sampling.logprobs = 4;
    ask.sampling.bias = {{'1', -100}};
    const Said without = say(*engine, ask);
    CHECK(text(without.ids) == "2");
    // Of what is left, .5 in all, 2 has .3.
    CHECK(without.logprobs[0].chosen == doctest::Approx(std::log(.6)).epsilon(1e-4));
    CHECK(without.logprobs[0].top[0].id == '2');
    ask.sampling.bias = {{'4', 100}};
    const Said forced = say(*engine, ask);
    CHECK(text(forced.ids) == "4");
    CHECK(std::abs(forced.logprobs[0].chosen) < 1e-4);
    ask.sampling.bias = {{'2', 1}, {'1', -1}};
    CHECK(text(say(*engine, ask).ids) == "2");
  }
}

TEST_CASE("a seed gives the same tokens whoever else is in the batch") {
  const auto engine = script();
  Ask seeded;
  seeded.sampling = {.temperature = 1, .seed = 42};
  seeded.tokens = 60;
  const Tokens alone = say(*engine, seeded).ids;
  const auto neighbours = [&](uint64_t first) {
    std::vector<Ask> asks(7, seeded);
    for (size_t i = 0; i < asks.size(); i++) {
      asks[i].sampling.seed = first + i;
      asks[i].prompt = std::string(i, 'a') + "(";
      asks[i].tokens = 10 + 10 * i;
    }
    return asks;
  };
  auto first = neighbours(7'000), last = neighbours(9'000);
  first.insert(first.begin(), seeded);
  last.push_back(seeded);
  CHECK(say(*engine, first).front().ids == alone);
  CHECK(say(*engine, last).back().ids == alone);
  const auto twice = say(*engine, {seeded, seeded});
  CHECK(twice[0].ids == alone);
  CHECK(twice[1].ids == alone);
  Ask other = seeded;
  other.sampling.seed = 43;
  CHECK(say(*engine, other).ids != alone);
}

TEST_CASE("four thousand draws follow the probabilities") {
  const auto engine = script(200);
  auto share = draws(*engine, {.temperature = 1}, 4000);
  CHECK(seen(share) == "1234");
  CHECK(std::abs(share['1'] - .5) < .025);
  CHECK(std::abs(share['2'] - .3) < .025);
  CHECK(std::abs(share['3'] - .15) < .025);
  CHECK(std::abs(share['4'] - .05) < .025);
}

struct Penalty {
  Sampling sampling;
  std::string answer;
};

// Presence and frequency do not count the three 1 of the prompt, the repetition penalty does.
std::vector<Penalty> penalty_cases() {
  std::vector<Penalty> all(4);
  all[0].answer = "1(1(1(1(1(1(";
  all[1].sampling.presence_penalty = 2;
  all[1].answer = "1(2(3(1(1(1(";
  all[2].sampling.frequency_penalty = 1;
  all[2].answer = "1(2(1(3(2(1(";
  all[3].sampling.repetition_penalty = 1.5f;
  all[3].answer = "2(1(1(1(1(1(";
  return all;
}

TEST_CASE("penalties count what they should") {
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    const auto engine = script(std::move(d.device));
    for (const Penalty& p : penalty_cases()) {
      Ask ask;
      ask.prompt = "1(1(1(";
      ask.sampling = p.sampling;
      ask.tokens = p.answer.size();
      CHECK(text(say(*engine, ask).ids) == p.answer);
    }
  }
}

// A replay knows of the generated tokens only that they were the last of its prompt.
TEST_CASE("penalties go on after a hand-over, a preemption or a replay at any token") {
  const auto engine = script();
  for (const Penalty& p : penalty_cases()) {
    CAPTURE(p.answer);
    for (uint32_t cut = 0; cut < p.answer.size(); cut++) {
      CAPTURE(cut);
      Ask rest;
      rest.prompt = "1(1(1(" + p.answer.substr(0, cut);
      rest.generated = cut;
      rest.sampling = p.sampling;
      rest.tokens = p.answer.size() - cut;
      CHECK(text(say(*engine, rest).ids) == p.answer.substr(cut));
    }
  }
}

}  // namespace
}  // namespace headrace::worker

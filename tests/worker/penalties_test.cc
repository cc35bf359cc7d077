#include "worker/penalties.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

namespace headrace::worker {
namespace {

using Tokens = std::vector<Token>;

// What one edit does to a logit of 6 and of -6, so that division and multiplication both show.
struct Effect {
  double above, below;
  bool operator==(const Effect&) const = default;
};

std::map<Token, Effect> effects(const std::vector<kernels::LogitEdit>& edits) {
  std::map<Token, Effect> out;
  Token last = -1;
  for (const auto& e : edits) {
    CHECK(e.id > last);  // ascending, each once
    last = e.id;
    const Effect effect{6.0 / e.divide + e.add, -6.0 * e.divide + e.add};
    if (effect != Effect{6, -6}) out[e.id] = effect;
  }
  return out;
}

std::map<Token, Effect> once(const Sampling& sampling, uint32_t prompt, const Tokens& tokens) {
  return effects(Penalties(sampling, prompt).edits(tokens));
}

// By the definition, an id at a time.
std::map<Token, Effect> truth(const Sampling& s, size_t prompt, const Tokens& tokens) {
  std::map<Token, Effect> out;
  std::set<Token> ids(tokens.begin(), tokens.end());
  for (const auto& b : s.bias) ids.insert(b.id);
  for (const Token id : ids) {
    int generated = 0;
    bool seen = false;
    for (size_t i = 0; i < tokens.size(); i++) {
      if (tokens[i] != id) continue;
      seen = true;
      if (i >= prompt) ++generated;
    }
    double above = 6, below = -6;
    if (seen) {
      above /= s.repetition_penalty;
      below *= s.repetition_penalty;
    }
    double add = -double{s.frequency_penalty} * generated;
    if (generated > 0) add -= s.presence_penalty;
    for (const auto& b : s.bias)
      if (b.id == id) add += b.bias;
    if (above + add != 6 || below + add != -6) out[id] = {above + add, below + add};
  }
  return out;
}

TEST_CASE("without penalties and bias there is nothing to do") {
  Penalties none;
  CHECK(none.idle());
  CHECK(none.edits(Tokens{1, 2, 3}).empty());
  Penalties plain({.temperature = 1, .top_k = 5, .seed = 3}, 2);
  CHECK(plain.idle());
  CHECK(plain.edits(Tokens{1, 2, 3}).empty());
}

TEST_CASE("presence and frequency count what was generated and not the prompt") {
  const Tokens tokens{1, 1, 2, 1, 3, 3};
  Sampling s;
  s.presence_penalty = 2;
  CHECK(once(s, 3, tokens) == std::map<Token, Effect>{{1, {4, -8}}, {3, {4, -8}}});
  CHECK(once(s, 6, tokens).empty());
  s.presence_penalty = 0;
  s.frequency_penalty = 1;
  CHECK(once(s, 3, tokens) == std::map<Token, Effect>{{1, {5, -7}}, {3, {4, -8}}});
  s.presence_penalty = -0.5f;
  CHECK(once(s, 3, tokens) == std::map<Token, Effect>{{1, {5.5, -6.5}}, {3, {4.5, -7.5}}});
}

TEST_CASE("the repetition penalty counts prompt and answer, each id once") {
  Sampling s;
  s.repetition_penalty = 2;
  CHECK(once(s, 3, {9, 9, 4, 5, 5}) ==
        std::map<Token, Effect>{{4, {3, -12}}, {5, {3, -12}}, {9, {3, -12}}});
  s.repetition_penalty = 0.5f;
  CHECK(once(s, 1, {7}) == std::map<Token, Effect>{{7, {12, -3}}});
}

TEST_CASE("a bias is added whether its id was seen or not") {
  Sampling s;
  s.bias = {{8, 100}, {2, -1}};
  CHECK_FALSE(Penalties(s, 1).idle());
  CHECK(once(s, 1, {1}) == std::map<Token, Effect>{{2, {5, -7}}, {8, {106, 94}}});
  s.bias = {{8, 1}, {2, -1}, {8, 2}};  // the edge refuses it; here the edits must stay one an id
  CHECK(once(s, 1, {1}) == std::map<Token, Effect>{{2, {5, -7}}, {8, {9, -3}}});
  s.bias = {{8, 100}, {2, -1}};
  s.repetition_penalty = 2;
  s.presence_penalty = 1;
  CHECK(once(s, 0, {2}) == std::map<Token, Effect>{{2, {1, -14}}, {8, {106, 94}}});
}

TEST_CASE("token by token or rebuilt from all tokens: the same edits, bit by bit") {
  std::mt19937 rng(4);
  for (int round = 0; round < 200; ++round) {
    const auto coin = [&] { return rng() % 2 == 0; };
    Sampling s;
    if (coin()) s.presence_penalty = 1.25f;
    if (coin()) s.frequency_penalty = -0.3f;
    if (coin()) s.repetition_penalty = 1.3f;
    if (coin()) s.bias = {{30, 1}, {3, -2}, {11, 0.1f}};
    const size_t prompt = rng() % 20;
    Tokens tokens;
    for (size_t i = 0; i < prompt + 30; ++i) tokens.push_back(static_cast<Token>(rng() % 25));
    Penalties grown(s, static_cast<uint32_t>(prompt));
    size_t n = rng() % (prompt + 1);
    while (n <= tokens.size()) {
      const std::span<const Token> so_far(tokens.data(), n);
      const auto edits = grown.edits(so_far);
      const auto fresh = Penalties(s, static_cast<uint32_t>(prompt)).edits(so_far);
      REQUIRE(edits.size() == fresh.size());
      for (size_t i = 0; i < edits.size(); ++i) {
        CHECK(edits[i].id == fresh[i].id);
        CHECK(edits[i].divide == fresh[i].divide);
        CHECK(edits[i].add == fresh[i].add);
      }
      const auto got = effects(edits);
      const auto wanted = truth(s, prompt, {so_far.begin(), so_far.end()});
      REQUIRE(got.size() == wanted.size());
      for (const auto& [id, effect] : wanted) {
        CHECK(got.at(id).above == doctest::Approx(effect.above).epsilon(1e-5));
        CHECK(got.at(id).below == doctest::Approx(effect.below).epsilon(1e-5));
      }
      n += rng() % 4;  // 0: asked again, as after a step that did not run
    }
  }
}

TEST_CASE("a long prompt of many ids is taken") {
  Tokens tokens;
  for (Token i = 0; i < 200'000; ++i) tokens.push_back((i * 7919) % 49'152);
  Sampling s;
  s.repetition_penalty = 1.1f;
  Penalties p(s, static_cast<uint32_t>(tokens.size()));
  CHECK(p.edits(tokens).size() == 49'152);
  tokens.push_back(5);
  CHECK(p.edits(tokens).size() == 49'152);
}

TEST_CASE("biases alone do not depend on the tokens") {
  Sampling s;
  CHECK_FALSE(Penalties(s, 0).counts());
  s.bias = {{4, 2.0f}};
  Penalties biased(s, 1);
  CHECK_FALSE(biased.counts());
  const auto before = effects(biased.edits(Tokens{1}));
  CHECK(before == effects(biased.edits(Tokens{1, 4, 4})));
  for (float Sampling::*penalty :
       {&Sampling::presence_penalty, &Sampling::frequency_penalty, &Sampling::repetition_penalty}) {
    Sampling with = s;
    with.*penalty = 1.5f;
    CHECK(Penalties(with, 0).counts());
  }
}

}  // namespace
}  // namespace headrace::worker

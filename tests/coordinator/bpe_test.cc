#include "coordinator/bpe.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <random>
#include <utility>

using headrace::Token;
using headrace::coordinator::BpeMerges;

namespace {

struct Rule {
  Token left, right, result;
};

std::vector<Token> applied(const std::vector<Rule>& rules, const std::vector<Token>& word) {
  BpeMerges merges;
  for (const auto& r : rules) CHECK(merges.add(r.left, r.right, r.result));
  BpeMerges::Scratch scratch;
  std::vector<Token> out;
  merges.apply(word, scratch, out);
  return out;
}

// The definition: again and again, all places of the lowest rank, from the left.
std::vector<Token> plainly(const std::vector<Rule>& rules, std::vector<Token> word) {
  while (true) {
    size_t best = rules.size();
    for (size_t r = rules.size(); r-- > 0;) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] == rules[r].left && word[i + 1] == rules[r].right) best = r;
      }
    }
    if (best == rules.size()) return word;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      if (word[i] != rules[best].left || word[i + 1] != rules[best].right) continue;
      word[i] = rules[best].result;
      word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      break;
    }
  }
}

}  // namespace

TEST_CASE("the lowest rank is joined first, then the leftmost") {
  CHECK(applied({{1, 2, 12}, {2, 3, 23}}, {1, 2, 3}) == std::vector<Token>{12, 3});
  CHECK(applied({{2, 3, 23}, {1, 2, 12}}, {1, 2, 3}) == std::vector<Token>{1, 23});
  CHECK(applied({{1, 1, 2}}, {1, 1, 1}) == std::vector<Token>{2, 1});
  CHECK(applied({{1, 1, 2}, {2, 2, 3}}, {1, 1, 1, 1, 1}) == std::vector<Token>{3, 1});
  CHECK(applied({}, {5, 6}) == std::vector<Token>{5, 6});
  CHECK(applied({{1, 1, 2}}, {}) == std::vector<Token>{});
}

TEST_CASE("a pair has one rank") {
  BpeMerges merges;
  CHECK(merges.add(1, 2, 3));
  CHECK(!merges.add(1, 2, 4));
}

TEST_CASE("as the definition says, on random words") {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Rule> rules;
    std::map<std::pair<Token, Token>, bool> seen;
    for (int r = 0; r < 6; ++r) {
      const Token limit = 3 + r;
      const Rule rule{static_cast<Token>(random() % static_cast<unsigned>(limit)),
                      static_cast<Token>(random() % static_cast<unsigned>(limit)), limit};
      if (!std::exchange(seen[{rule.left, rule.right}], true)) rules.push_back(rule);
    }
    std::vector<Token> word(random() % 20);
    for (auto& w : word) w = static_cast<Token>(random() % 3);
    REQUIRE(applied(rules, word) == plainly(rules, word));
  }
}

TEST_CASE("a long word does not take quadratic time") {
  const auto begin = std::chrono::steady_clock::now();
  const auto out = applied({{1, 1, 2}, {2, 2, 3}, {3, 3, 4}}, std::vector<Token>(1'000'000, 1));
  CHECK(out == std::vector<Token>(125'000, 4));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

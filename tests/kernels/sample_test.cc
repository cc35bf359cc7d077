#include <doctest/doctest.h>

#include <map>

#include "kernels/philox.h"
#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

constexpr SampleRow kGreedy{0, 0, 1, 0, 0, 0};

// The token of one row on every path; they must agree.
int32_t choose(const Array<float>& logits, SampleRow row, int32_t vocab = -1) {
  if (vocab < 0) vocab = static_cast<int32_t>(logits.size());
  int32_t first = -2;
  for (CpuPath path : paths()) {
    Array<int32_t> id(1, -3);
    make_cpu_device(path, 1)->run(
        Sample{logits.data(), &row, 1, vocab, static_cast<int64_t>(logits.size()), id.data()});
    CHECK(id.guarded());
    if (first == -2) first = id[0];
    CHECK(id[0] == first);
  }
  return first;
}
int32_t truth(const Array<float>& logits, SampleRow row) {
  int32_t id = -3;
  reference(Sample{logits.data(), &row, 1, static_cast<int32_t>(logits.size()),
                   static_cast<int64_t>(logits.size()), &id});
  return id;
}

// Relative frequencies of `draws` tokens on the fastest path.
std::map<int32_t, double> frequencies(const Array<float>& logits, SampleRow row, int draws) {
  std::vector<SampleRow> rows(static_cast<size_t>(draws), row);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].index = static_cast<uint32_t>(i);
  Array<int32_t> ids(rows.size());
  // Every row reads the same logits.
  make_cpu_device(best_cpu_path(), 2)
      ->run(Sample{logits.data(), rows.data(), draws, static_cast<int32_t>(logits.size()), 0,
                   ids.data()});
  std::map<int32_t, double> f;
  for (int32_t id : ids) f[id] += 1.0 / draws;
  return f;
}

Array<float> logits_of(std::initializer_list<double> probabilities) {
  Array<float> x(probabilities.size());
  std::transform(probabilities.begin(), probabilities.end(), x.begin(),
                 [](double p) { return static_cast<float>(std::log(p)); });
  return x;
}

}  // namespace

TEST_CASE("greedy: the largest logit, ties to the lower id, wherever it lies") {
  std::mt19937 rng(1);
  for (size_t n : {1, 2, 15, 16, 17, 33, 1000}) {
    for (size_t at = 0; at<n; at += n> 40 ? 97 : 1) {
      auto x = random_floats(n, rng);
      for (auto& v : x) v = -std::fabs(v) - 1;  // all negative: padding must not win
      x[at] = -0.5f;
      if (at + 3 < n) x[at + 3] = -0.5f;
      REQUIRE(choose(x, kGreedy) == static_cast<int32_t>(at));
      REQUIRE(truth(x, kGreedy) == static_cast<int32_t>(at));
    }
  }
}

TEST_CASE("logits that are no numbers give -1, minus infinity is a mask") {
  for (size_t at : {0u, 5u, 31u, 40u}) {
    for (const SampleRow row : {kGreedy, SampleRow{1, 0, 1, 0, 7, 0}}) {
      Array<float> x(41, 1.0f);
      x[at] = kNan;
      CHECK(choose(x, row) == -1);
      CHECK(truth(x, row) == -1);
      x[at] = -kNan;
      CHECK(choose(x, row) == -1);
      x[at] = HUGE_VALF;
      CHECK(choose(x, row) == -1);
      x[at] = -HUGE_VALF;
      const int32_t id = choose(x, row);
      CHECK(id >= 0);
      CHECK(id != static_cast<int32_t>(at));
    }
  }
  const Array<float> none(20, -HUGE_VALF);
  CHECK(choose(none, kGreedy) == -1);
  CHECK(truth(none, kGreedy) == -1);
}

TEST_CASE("only the first `vocab` logits count") {
  Array<float> x(64, 0.0f);
  x[7] = 1;
  x[40] = 5;
  x[50] = kNan;
  CHECK(choose(x, kGreedy, 40) == 7);
  CHECK(choose(x, kGreedy, 41) == 40);
  CHECK(choose(x, {1e-3f, 0, 1, 0, 1, 1}, 40) == 7);
}

TEST_CASE("a vanishing temperature is greedy") {
  Array<float> x(100, 0.0f);
  x[30] = x[60] = 2;
  for (float t : {1e-38f, 1e-45f, 1e-7f, 0.0f, -1.0f, kNan}) {
    for (uint32_t i = 0; i < 20; ++i) REQUIRE(choose(x, {t, 0, 1, 0, i, i}) == 30);
  }
  x[60] = 2.001f;
  CHECK(choose(x, {1e-5f, 0, 1, 0, 1, 1}) == 60);
}

TEST_CASE("the uniform walks down the probabilities, ties by id") {
  // Order: 2 (0.4), 0 (0.3), 1 (0.15), 3 (0.15).
  const auto x = logits_of({0.3, 0.15, 0.4, 0.15});
  for (uint32_t i = 0; i < 500; ++i) {
    const double u = uniform(11, i);
    const int32_t want = u < 0.4 ? 2 : u < 0.7 ? 0 : u < 0.85 ? 1 : 3;
    REQUIRE(choose(x, {1, 0, 1, 0, 11, i}) == want);
    REQUIRE(truth(x, {1, 0, 1, 0, 11, i}) == want);
    // Top-k of 3: the tie goes to id 1.
    const double k = u * 0.85;
    REQUIRE(choose(x, {1, 3, 1, 0, 11, i}) == (k < 0.4 ? 2 : k < 0.7 ? 0 : 1));
    // Top-p 0.5 keeps two; min-p 0.5 drops what is below 0.2.
    REQUIRE(choose(x, {1, 0, 0.5f, 0, 11, i}) == (u * 0.7 < 0.4 ? 2 : 0));
    REQUIRE(choose(x, {1, 0, 1, 0.5f, 11, i}) == (u * 0.7 < 0.4 ? 2 : 0));
    REQUIRE(choose(x, {1, 1, 1, 0, 11, i}) == 2);
    REQUIRE(choose(x, {1, 0, 1e-9f, 0, 11, i}) == 2);
    REQUIRE(choose(x, {1, 0, 1, 1, 11, i}) == 2);
    REQUIRE(choose(x, {1, 4, 1, 0, 11, i}) == want);
    REQUIRE(choose(x, {1, 100, 1, 0, 11, i}) == want);
  }
}

TEST_CASE("top-k renormalizes before top-p is taken") {
  // Of all, 0.5 alone reaches top-p 0.5; of the best two (0.5, 0.25) it has two thirds.
  const auto x = logits_of({0.5, 0.25, 0.15, 0.1});
  CHECK(frequencies(x, {1, 2, 0.7f, 0, 3, 0}, 300).size() == 2);
  CHECK(frequencies(x, {1, 2, 0.6f, 0, 3, 0}, 300).size() == 1);
}

TEST_CASE("frequencies follow the probabilities at a temperature") {
  const auto x = logits_of({0.5, 0.3, 0.2});
  for (float t : {0.5f, 1.0f, 2.0f}) {
    const auto f = frequencies(x, {t, 0, 1, 0, 5, 0}, 20000);
    double sum = 0;
    const double p[3] = {std::pow(0.5, 1 / t), std::pow(0.3, 1 / t), std::pow(0.2, 1 / t)};
    for (double v : p) sum += v;
    for (int32_t i = 0; i < 3; ++i) {
      CHECK(f.at(i) == doctest::Approx(p[i] / sum).epsilon(0.06));
    }
  }
}

TEST_CASE("a real vocabulary: all paths agree with each other and with the reference") {
  std::mt19937 rng(9);
  const auto x = random_floats(49152, rng, 3);
  int differ = 0, all = 0;
  for (const SampleRow base : {SampleRow{0.8f, 40, 0.95f, 0, 1, 0},
                               {1, 0, 0.9f, 0, 2, 0},
                               {1.5f, 0, 1, 0.02f, 3, 0},
                               {100, 0, 1, 0, 4, 0},
                               {0.1f, 0, 1, 0, 5, 0}}) {
    for (uint32_t i = 0; i < 4; ++i) {
      SampleRow row = base;
      row.index = i;
      differ += choose(x, row) != truth(x, row);
      ++all;
    }
  }
  // Weights are floats, so a uniform that falls on a border may choose the neighbour.
  CHECK(differ <= all / 10);
}

#include "kernels/log_probs.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

constexpr float kInf = HUGE_VALF;

struct Wish {
  int32_t chosen, count;
};

struct Row {
  float chosen = 0;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

// One device over rows of `logits`; what was not asked for must stay untouched.
std::vector<Row> on(Device& device, const Array<float>& logits, const std::vector<Wish>& wishes,
                    int32_t vocab, int64_t stride, int32_t top) {
  const auto rows = static_cast<int32_t>(wishes.size());
  const size_t outputs = wishes.size() * static_cast<size_t>(top);
  Array<int32_t> chosen(wishes.size()), counts(wishes.size()), ids(outputs, -7);
  Array<float> chosen_logprob(wishes.size(), 5.0f), logprobs(outputs, 5.0f);
  for (size_t r = 0; r < wishes.size(); ++r) {
    chosen[r] = wishes[r].chosen;
    counts[r] = wishes[r].count;
  }
  device.run(LogProbs{logits.data(), chosen.data(), counts.data(), rows, vocab, stride, top,
                      chosen_logprob.data(), ids.data(), logprobs.data()});
  CHECK(ids.guarded());
  CHECK(logprobs.guarded());
  CHECK(chosen_logprob.guarded());
  std::vector<Row> out(wishes.size());
  for (size_t r = 0; r < wishes.size(); ++r) {
    const bool asked = wishes[r].chosen >= 0 && wishes[r].count > 0;
    const size_t count = asked ? static_cast<size_t>(wishes[r].count) : 0;
    out[r].chosen = chosen_logprob[r];
    if (!asked) CHECK(out[r].chosen == 5.0f);
    for (size_t i = 0; i < static_cast<size_t>(top); ++i) {
      const size_t at = r * static_cast<size_t>(top) + i;
      if (i >= count) {
        CHECK(ids[at] == -7);
        CHECK(logprobs[at] == 5.0f);
        continue;
      }
      out[r].ids.push_back(ids[at]);
      out[r].logprobs.push_back(logprobs[at]);
    }
  }
  return out;
}

// All paths and thread counts agree to the bit and are close to the reference, whose rows return.
std::vector<Row> log_probs(const Array<float>& logits, const std::vector<Wish>& wishes,
                           int32_t vocab, int64_t stride, int32_t top = 20) {
  const auto device = make_reference_device(1);
  const auto truth = on(*device, logits, wishes, vocab, stride, top);
  std::vector<Row> first;
  for (CpuPath path : paths()) {
    for (int threads : {1, 3}) {
      const auto cpu = make_cpu_device(path, threads);
      const auto got = on(*cpu, logits, wishes, vocab, stride, top);
      if (first.empty()) first = got;
      for (size_t r = 0; r < truth.size(); ++r) {
        CHECK(got[r].ids == truth[r].ids);
        CHECK(got[r].logprobs == first[r].logprobs);
        CHECK(got[r].chosen == first[r].chosen);
        CHECK(std::fabs(got[r].chosen - truth[r].chosen) <= 2e-6f);
        for (size_t i = 0; i < truth[r].logprobs.size(); ++i)
          CHECK(std::fabs(got[r].logprobs[i] - truth[r].logprobs[i]) <= 2e-6f);
      }
    }
  }
  return truth;
}

Row one(const Array<float>& logits, Wish wish, int32_t top = 20) {
  const auto n = static_cast<int32_t>(logits.size());
  return log_probs(logits, {wish}, n, n, top)[0];
}

Array<float> array(std::initializer_list<float> values) {
  Array<float> x(values.size());
  std::copy(values.begin(), values.end(), x.begin());
  return x;
}

}  // namespace

TEST_CASE("known probabilities come back, the best first") {
  const auto x =
      array({std::log(0.15f) + 7, std::log(0.5f) + 7, std::log(0.05f) + 7, std::log(0.3f) + 7});
  const Row row = one(x, {2, 3});
  CHECK(row.ids == std::vector<int32_t>{1, 3, 0});
  CHECK(row.chosen == doctest::Approx(std::log(0.05)).epsilon(1e-6));
  CHECK(row.logprobs[0] == doctest::Approx(std::log(0.5)).epsilon(1e-6));
  CHECK(row.logprobs[1] == doctest::Approx(std::log(0.3)).epsilon(1e-6));
  CHECK(row.logprobs[2] == doctest::Approx(std::log(0.15)).epsilon(1e-6));
}

// Sizes around a vector and around a slice of the sum, against sums in long double.
TEST_CASE("every size of vocabulary gives a distribution") {
  std::mt19937 rng(3);
  for (int32_t n : {1, 2, 15, 16, 17, 31, 33, 1000, 1023, 1024, 1025, 1041, 2048, 5003}) {
    CAPTURE(n);
    const auto x = random_floats(static_cast<size_t>(n), rng, 3);
    const auto at = static_cast<int32_t>(rng() % static_cast<unsigned>(n));
    long double sum = 0;
    for (float v : x) sum += std::exp(static_cast<long double>(v));
    const Row row = one(x, {at, 20});
    const auto right = [&](int32_t id) {
      return static_cast<double>(x[static_cast<size_t>(id)] - std::log(sum));
    };
    CHECK(row.chosen == doctest::Approx(right(at)).epsilon(1e-6));
    std::vector<int32_t> order(static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
    std::sort(order.begin(), order.end(), [&x](int32_t a, int32_t b) {
      return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
    });
    for (int32_t i = 0; i < 20; ++i) {
      const size_t k = static_cast<size_t>(i);
      if (i >= n) {
        CHECK(row.ids[k] == -1);
        CHECK(row.logprobs[k] == kLogprobMin);
        continue;
      }
      CHECK(row.ids[k] == order[k]);
      CHECK(row.logprobs[k] == doctest::Approx(right(order[k])).epsilon(1e-6));
    }
  }
}

TEST_CASE("equal logits: the lower id first, also at the end of what was asked for") {
  for (size_t n : {8, 16, 40, 1100}) {
    const Array<float> x(n, 2.5f);
    const Row row = one(x, {3, 5});
    CHECK(row.ids == std::vector<int32_t>{0, 1, 2, 3, 4});
    for (float l : row.logprobs) CHECK(l == row.chosen);
    CHECK(row.chosen == doctest::Approx(-std::log(static_cast<double>(n))).epsilon(1e-6));
  }
  const auto x = array({1, 3, 2, 3, 2, 3, 2, 0});
  CHECK(one(x, {0, 5}).ids == std::vector<int32_t>{1, 3, 5, 2, 4});
}

TEST_CASE("masked and vanishing tokens are finite") {
  const auto x = array({-kInf, 0, -kInf, -1e30f, 3e38f});
  const Row row = one(x, {0, 5});
  CHECK(row.chosen == kLogprobMin);
  CHECK(row.ids == std::vector<int32_t>{4, 1, 3, 0, 2});
  CHECK(row.logprobs == std::vector<float>{0, -9999, -9999, -9999, -9999});
  for (const auto& odd : {array({-kInf, -kInf}), array({kNan, 1}), array({kInf, 1})}) {
    const Row all = one(odd, {0, 2});
    CHECK(all.chosen == kLogprobMin);
    for (float l : all.logprobs) CHECK(l == kLogprobMin);
  }
}

TEST_CASE("rows that do not ask are left alone, logits past the vocabulary do not count") {
  std::mt19937 rng(8);
  const int64_t stride = 90;
  auto x = random_floats(5 * 90, rng, 2);
  for (size_t r = 0; r < 5; ++r) x[r * 90 + 77] = 50;
  const std::vector<Wish> wishes{{4, 3}, {-1, 3}, {5, 0}, {0, 1}, {76, 4}};
  const auto rows = log_probs(x, wishes, 77, stride, 4);
  for (size_t r : {0u, 3u, 4u}) {
    Array<float> alone(77);
    std::copy(x.begin() + r * 90, x.begin() + r * 90 + 77, alone.begin());
    const Row row = one(alone, wishes[r], 4);
    CHECK(row.chosen == rows[r].chosen);
    CHECK(row.ids == rows[r].ids);
  }
}

TEST_CASE("a real vocabulary, sharp and flat") {
  std::mt19937 rng(5);
  for (float scale : {0.01f, 1.0f, 10.0f, 300.0f}) {
    const auto x = random_floats(49152, rng, scale);
    const Row row = one(x, {123, 20});
    double sum = 0;
    for (float v : x) sum += std::exp(double{v} - x[static_cast<size_t>(row.ids[0])]);
    CHECK(row.logprobs[0] == doctest::Approx(-std::log(sum)).epsilon(1e-5));
  }
}

TEST_CASE("it costs one pass over the logits of the rows that ask") {
  const int32_t chosen[] = {1, -1, 2}, counts[] = {20, 20, 0};
  const LogProbs op{nullptr, chosen, counts, 3, 1000, 1000, 20, nullptr, nullptr, nullptr};
  CHECK(cost(op).activation_bytes == 4 * 1000 + 4 + 20 * 8);
  CHECK(cost(op).flops == 12 * 1000);
  CHECK(cost(op).weight_bytes == 0);
}

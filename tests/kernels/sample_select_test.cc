#include "kernels/cpu/sample_select.h"

#include <doctest/doctest.h>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

TEST_CASE("tokens are walked in full order across buckets") {
  // Weights whose buckets hold from one to thousands of tokens.
  std::mt19937 rng(1);
  const int32_t n = 5000;
  Array<std::byte> scratch(sample_memory_bytes(n));
  std::vector<float> weights(n);
  for (auto& w : weights)
    w = std::ldexp(1.0f + static_cast<float>(rng() % 4) / 4, -2 - int(rng() % 3));
  weights[77] = 1;
  for (int i = 0; i < 50; ++i) weights[rng() % 77] = 0;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < n; ++i) {
    if (weights[static_cast<size_t>(i)] > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return weights[static_cast<size_t>(a)] > weights[static_cast<size_t>(b)];
  });
  // With top-k = k the last of the k tokens is chosen when the uniform is near one.
  uint32_t index = 0;
  for (int32_t k : {1, 2, 10, 500, 3000}) {
    const SampleMemory m = sample_memory(scratch.data(), n);
    int32_t worst = 0;
    for (int tries = 0; tries < 200; ++tries) {
      std::copy(weights.begin(), weights.end(), m.weights);
      const int32_t id = select_token(m, n, {1, k, 1, 0, 1, index++});
      const auto at = std::find(order.begin(), order.end(), id) - order.begin();
      worst = std::max(worst, static_cast<int32_t>(at));
    }
    CHECK(worst < k);
    CHECK(worst >= k * 9 / 10 - 1);
  }
  CHECK(scratch.guarded());
}

TEST_CASE("only rows that are not greedy need memory") {
  const SampleRow rows[2] = {{0, 0, 1, 0, 0, 0}, {1, 0, 1, 0, 0, 0}};
  CHECK(greedy(rows[0]));
  CHECK_FALSE(greedy(rows[1]));
}

#include <doctest/doctest.h>

#include "kernels/ops.h"
#include "tests/kernels/harness.h"

namespace headrace::kernels {
namespace {

using namespace testing;

TEST_CASE(
    "gathered rows are the rows named, in any order and more than once; the others are zero") {
  std::mt19937 rng(1);
  const auto x = random_floats(size_t{5} * 7, rng);
  const int32_t index[] = {4, -1, 0, 4, -7, 2};
  Array<float> y(size_t{6} * 7);
  reference(GatherRows{x.data(), index, 6, 7, y.data()});
  CHECK(y.guarded());
  for (size_t r = 0; r < 6; r++) {
    for (size_t c = 0; c < 7; c++) {
      CAPTURE(r);
      CHECK(y[r * 7 + c] == (index[r] < 0 ? 0.0f : x[static_cast<size_t>(index[r]) * 7 + c]));
    }
  }
}

TEST_CASE("no rows: nothing is touched") {
  Array<float> y(3);
  reference(GatherRows{nullptr, nullptr, 0, 3, y.data()});
  for (const float f : y) CHECK(std::isnan(f));
}

TEST_CASE("cost of gathered rows: each is read and written") {
  const Cost c = cost(GatherRows{nullptr, nullptr, 3, 64, nullptr});
  CHECK(c == Cost{.activation_bytes = 2 * 3 * 64 * 4});
}

}  // namespace
}  // namespace headrace::kernels

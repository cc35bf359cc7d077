#include "kernels/rope_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using headrace::kernels::build_rope;

namespace {

double worst_error(int context, int rotated, double base, double linear, const float* factors) {
  std::vector<float> table(static_cast<size_t>(context) * static_cast<size_t>(rotated));
  build_rope(context, rotated, base, linear, factors, table.data());
  double worst = 0;
  for (int t = 0; t < context; ++t) {
    for (int i = 0; i < rotated / 2; ++i) {
      const double f = std::pow(base, -2.0 * i / rotated) / (factors ? factors[i] : 1) / linear;
      const float* pair = &table[static_cast<size_t>(t * rotated + 2 * i)];
      worst = std::max(
          {worst, std::fabs(pair[0] - std::cos(t * f)), std::fabs(pair[1] - std::sin(t * f))});
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("the table holds cos and sin to the last bits of a float") {
  CHECK(worst_error(8192, 64, 100000, 1, nullptr) < 7e-8);
  CHECK(worst_error(4096, 128, 10000, 4, nullptr) < 7e-8);
  const float factors[16] = {1, 1, 1, 1, 1.5f, 2, 3, 4, 6, 8, 8, 8, 8, 8, 8, 8};
  CHECK(worst_error(2048, 32, 500000, 1, factors) < 7e-8);
  CHECK(worst_error(1, 2, 10000, 1, nullptr) == 0);
}

TEST_CASE("the first pair of the last position of a long context is right") {
  const int context = 131072;
  std::vector<float> table(2 * context);
  build_rope(context, 2, 10000, 1, nullptr, table.data());
  CHECK(table[2 * 131071] == static_cast<float>(std::cos(131071.0L)));
  CHECK(table[2 * 131071 + 1] == static_cast<float>(std::sin(131071.0L)));
}

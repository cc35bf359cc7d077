#include "kernels/math.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace headrace::kernels;

namespace {

double relative(double got, long double truth) {
  return static_cast<double>(std::fabs((got - truth) / truth));
}

}  // namespace

TEST_CASE("exp") {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> wide(-700, 700), near(-2, 2);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 ? wide(rng) : near(rng);
    worst = std::max(worst, relative(exp_exact(x), std::exp(static_cast<long double>(x))));
  }
  CHECK(worst < 4e-16);
  CHECK(exp_exact(0) == 1);
  CHECK(exp_exact(-800) == 0);
  CHECK(exp_exact(-INFINITY) == 0);
  CHECK(exp_exact(-740) == doctest::Approx(std::exp(-740.0)).epsilon(1e-2));  // subnormal
  CHECK(exp_exact(800) == INFINITY);
  CHECK(exp_exact(INFINITY) == INFINITY);
  CHECK(std::isnan(exp_exact(NAN)));
}

TEST_CASE("log") {
  std::mt19937_64 rng(2);
  std::uniform_real_distribution<double> exponent(-300, 300), near(0.9, 1.1);
  double worst = 0, worst_near = 0;
  for (int i = 0; i < 100000; ++i) {
    double x = std::pow(10.0, exponent(rng));
    if (std::fabs(x - 1) > 0.1) {
      worst = std::max(worst, relative(log_exact(x), std::log(static_cast<long double>(x))));
    }
    x = near(rng);
    worst_near = std::max(
        worst_near,
        static_cast<double>(std::fabs(log_exact(x) - std::log(static_cast<long double>(x)))));
  }
  CHECK(worst < 1e-15);
  CHECK(worst_near < 2e-16);
  CHECK(log_exact(1) == 0);
}

TEST_CASE("pow, as rotary frequencies need it") {
  double worst = 0;
  for (double base : {2.0, 10000.0, 100000.0, 500000.0, 1e7}) {
    for (int i = 0; i <= 256; ++i) {
      const double e = -2.0 * i / 256;
      worst = std::max(worst, relative(pow_exact(base, e), std::pow(static_cast<long double>(base),
                                                                    static_cast<long double>(e))));
    }
  }
  CHECK(worst < 1e-14);
  CHECK(pow_exact(10000, 0) == 1);
}

TEST_CASE("sin and cos, small angles and large") {
  std::mt19937_64 rng(3);
  double worst = 0;
  const auto check = [&](double x) {
    const long double s = std::sin(static_cast<long double>(x));
    const long double c = std::cos(static_cast<long double>(x));
    worst = std::max(worst, static_cast<double>(std::fabs(sin_exact(x) - s)));
    worst = std::max(worst, static_cast<double>(std::fabs(cos_exact(x) - c)));
  };
  for (double top : {1.0, 100.0, 131072.0, kAngleMax}) {
    std::uniform_real_distribution<double> angle(-top, top);
    for (int i = 0; i < 100000; ++i) check(angle(rng));
  }
  for (int k = -200000; k <= 200000; k += 7) check(k * 1.57079632679489661923);  // worst cases
  for (int k = 0; k <= 131072; ++k) check(k);
  CHECK(worst < 3e-16);
  CHECK(sin_exact(0) == 0);
  CHECK(cos_exact(0) == 1);
}

#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace headrace::kernels {
namespace {

// Nearest whole number, ties to even, for |x| < 2^51: above 1.5 * 2^52 doubles have no fraction.
double nearest(double x) {
  constexpr double kShift = 0x1.8p52;
  return (x + kShift) - kShift;
}

double power_of_two(int n) {  // n in [-1022, 1023]
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// Reciprocals of factorials, correctly rounded by the compiler.
constexpr double inverse_factorial(int n) {
  double f = 1;
  for (int i = 2; i <= n; ++i) f *= i;  // exact up to 18!, then within half a unit
  return 1 / f;
}

// Taylor of sin and cos on [-pi/4, pi/4]; the first term left out is below 1e-19.
double sin_near_zero(double r) {
  const double r2 = r * r;
  double p = 0;
  for (int n = 17; n >= 3; n -= 2) p = p * r2 + (n % 4 == 1 ? 1 : -1) * inverse_factorial(n);
  return std::fma(r * r2, p, r);
}
double cos_near_zero(double r) {
  const double r2 = r * r;
  double p = 0;
  for (int n = 18; n >= 4; n -= 2) p = p * r2 + (n % 4 == 0 ? 1 : -1) * inverse_factorial(n);
  // 1 - r2/2 is split so that its rounding error is not lost.
  const double half = 0.5 * r2, w = 1 - half;
  return w + ((1 - w - half) + r2 * r2 * p);
}

// sin(x + quarter * pi/2). Pi/2 in three parts; the first product is exact under fma because the
// difference cancels (Cody and Waite).
double sin_quarter(double x, int quarter) {
  const double k = nearest(x * 0.63661977236758134308);
  double r = std::fma(-k, 0x1.921fb54442d18p+0, x);
  r = std::fma(-k, 0x1.1a62633145c07p-54, r);
  r = std::fma(-k, -0x1.f1976b7ed8fbcp-110, r);
  const int q = static_cast<int>((static_cast<int64_t>(k) + quarter) & 3);
  const double v = q % 2 ? cos_near_zero(r) : sin_near_zero(r);
  return q >= 2 ? -v : v;
}

}  // namespace

double exp_exact(double x) {
  if (!(x > -746)) return x != x ? x : 0;
  if (x > 710) return HUGE_VAL;
  const double n = nearest(x * 1.44269504088896340736);
  // ln 2 in two parts; the first has 21 zero bits at its end, so its product is exact.
  double r = std::fma(-n, 0x1.62e42fee00000p-1, x);
  r = std::fma(-n, 0x1.a39ef35793c76p-33, r);
  double p = 0;
  for (int i = 14; i >= 2; --i) p = p * r + inverse_factorial(i);
  p = 1 + (r + r * r * p);
  const int whole = static_cast<int>(n), half = whole / 2;
  return p * power_of_two(half) * power_of_two(whole - half);
}

double log_exact(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    e += 1;
  }
  // log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.172.
  const double f = m - 1, s = f / (m + 1), s2 = s * s;
  double p = 0;
  for (int i = 23; i >= 3; i -= 2) p = p * s2 + 2.0 / i;
  // 2s = f - s f, so that the large part of the sum is exact.
  const double tail = s * (s2 * p - f);
  return std::fma(e, 0x1.62e42fee00000p-1, f + std::fma(e, 0x1.a39ef35793c76p-33, tail));
}

double pow_exact(double base, double exponent) { return exp_exact(exponent * log_exact(base)); }

double sin_exact(double x) { return sin_quarter(x, 0); }
double cos_exact(double x) { return sin_quarter(x, 1); }

}  // namespace headrace::kernels

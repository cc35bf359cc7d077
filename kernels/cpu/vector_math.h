#pragma once

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

// 2^n for whole n within [-252, 254], from two factors so that neither leaves the exponent's range:
// p * 2^n is then right down to the subnormals and up to infinity.
LANES_FN Lanes scale_by_power(Lanes p, Ints n) {
  const Ints bias = splat_int(127), half = halve(n);
  const Lanes first = from_bits(shift_left_23(add(half, bias)));
  const Lanes second = from_bits(shift_left_23(add(sub(n, half), bias)));
  return mul(mul(p, first), second);
}

// 2^x, relative error below 2e-7 (1e-45 absolutely below 2^-126). NaN stays NaN; below -150 it is
// zero, from 128 on infinite. Polynomial: Taylor's, on [-0.5, 0.5].
LANES_FN Lanes exp2(Lanes x) {
  x = max(splat(-152.0f), min(splat(129.0f), x));  // in this order NaN passes through both
  const Ints n = round_to_int(x);
  const Lanes f = sub(x, to_float(n));
  Lanes p = splat(1.5252734e-5f);
  p = fma(p, f, splat(1.5403530e-4f));
  p = fma(p, f, splat(1.3333558e-3f));
  p = fma(p, f, splat(9.6181291e-3f));
  p = fma(p, f, splat(5.5504109e-2f));
  p = fma(p, f, splat(2.4022651e-1f));
  p = fma(p, f, splat(6.9314718e-1f));
  p = fma(p, f, splat(1.0f));
  return scale_by_power(p, n);
}

// e^x, relative error below 2e-7; zero below -104, infinite from 88.73 on; NaN stays NaN.
LANES_FN Lanes exp(Lanes x) {
  x = max(splat(-105.0f), min(splat(90.0f), x));
  const Ints n = round_to_int(mul(x, splat(1.44269504f)));
  const Lanes nf = to_float(n);
  Lanes r = fma(nf, splat(-0.693145752f), x);  // ln 2 in two parts (Cody and Waite)
  r = fma(nf, splat(-1.42860677e-6f), r);
  Lanes p = splat(1.9841270e-4f);
  p = fma(p, r, splat(1.3888889e-3f));
  p = fma(p, r, splat(8.3333333e-3f));
  p = fma(p, r, splat(4.1666667e-2f));
  p = fma(p, r, splat(1.6666667e-1f));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return scale_by_power(p, n);
}

}  // namespace
}  // namespace headrace::kernels

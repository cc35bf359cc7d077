#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "kernels/cpu/lanes_portable.h"
#include "kernels/cpu/vector_math.h"

// The portable lanes do by hand what other paths have instructions for; the operations' tests hold
// the paths against each other.

using namespace headrace::kernels;

namespace {

// Random bit patterns: all exponents, subnormals, infinities, NaN.
float any_float(std::mt19937& rng) { return std::bit_cast<float>(static_cast<uint32_t>(rng())); }

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

float fused(float a, float b, float c) {
  float out[16];
  store(out, fma(splat(a), splat(b), splat(c)));
  return out[7];
}

}  // namespace

TEST_CASE("the emulated fused multiply-add rounds once") {
  std::mt19937 rng(1);
  int bad = 0;
  for (int i = 0; i < 400000; ++i) {
    const float a = any_float(rng), b = any_float(rng);
    // The third term near the product, so that the sum cancels or ties.
    const float c =
        i % 2 ? any_float(rng)
              : -a * b * (1 + static_cast<float>(static_cast<int>(rng() % 5) - 2) * 0x1p-23f);
    bad += !same(fused(a, b, c), std::fma(a, b, c));
  }
  CHECK(bad == 0);
  // Rounding the double sum to float directly would be wrong here: it lies just above a tie.
  const float a = 1 + 0x1p-23f, b = 1 + 0x1p-23f, c = 0x1p-24f + 0x1p-60f;
  CHECK(same(fused(a, b, c), std::fma(a, b, c)));
  CHECK(same(fused(1, 1 + 0x1p-23f, 0x1p-24f), std::fma(1.0f, 1 + 0x1p-23f, 0x1p-24f)));
  CHECK(same(fused(1, 1, 0x1p-24f + 0x1p-47f), std::fma(1.0f, 1.0f, 0x1p-24f + 0x1p-47f)));
  CHECK(same(fused(0x1p-80f, 0x1p-69f, 0x1p-149f), std::fma(0x1p-80f, 0x1p-69f, 0x1p-149f)));
  CHECK(same(fused(-0.0f, 1, 0.0f), 0.0f));
  CHECK(same(fused(INFINITY, 1, -INFINITY), NAN));
}

TEST_CASE("every half goes to float and back") {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31) {
      if (mantissa) {
        REQUIRE(std::isnan(f));
      } else {
        REQUIRE(f == sign * INFINITY);
      }
    } else {
      const double truth =
          exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
      REQUIRE(f == sign * truth);
    }
    if (!std::isnan(f)) REQUIRE(float_to_half(f) == h);
    uint16_t halves[16];
    std::fill_n(halves, 16, static_cast<uint16_t>(h));
    float lanes[16];
    store(lanes, load_half(halves));
    REQUIRE(same(lanes[9], f));
    if (std::isnan(f)) REQUIRE(std::bit_cast<uint32_t>(lanes[9]) == std::bit_cast<uint32_t>(f));
  }
}

TEST_CASE("floats round to the nearest half, ties to even, overflow to infinity") {
  // Between neighbours: just below the middle, the middle, just above it.
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const float low = half_to_float(static_cast<uint16_t>(h));
    const float high = half_to_float(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    REQUIRE(float_to_half(std::nextafter(middle, low)) == h);
    REQUIRE(float_to_half(middle) == (h % 2 ? h + 1 : h));
    REQUIRE(float_to_half(std::nextafter(middle, high)) == h + 1);
    REQUIRE(float_to_half(-middle) == (0x8000 | (h % 2 ? h + 1 : h)));
  }
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520) == 0x7c00);
  CHECK(float_to_half(1e30f) == 0x7c00);
  CHECK(float_to_half(-INFINITY) == 0xfc00);
  CHECK(float_to_half(1e-30f) == 0);
  CHECK((float_to_half(NAN) & 0x7e00) == 0x7e00);
}

TEST_CASE("vector exponentials") {
  std::mt19937 rng(2);
  std::uniform_real_distribution<float> wide(-87, 88), near(-1, 1);
  double worst = 0, worst2 = 0;
  for (int i = 0; i < 100000; ++i) {
    const float x = i % 2 ? wide(rng) : near(rng);
    float y[16];
    store(y, exp(splat(x)));
    worst = std::max(worst, std::fabs(y[3] / std::exp(double{x}) - 1));
    store(y, headrace::kernels::exp2(splat(x)));
    worst2 = std::max(worst2, std::fabs(y[3] / std::exp2(double{x}) - 1));
  }
  CHECK(worst < 2e-7);
  CHECK(worst2 < 2e-7);
  const auto at = [](float x) {
    float y[16];
    store(y, exp(splat(x)));
    return y[0];
  };
  CHECK(at(0) == 1);
  CHECK(at(-1000) == 0);
  CHECK(at(-INFINITY) == 0);
  CHECK(at(1000) == INFINITY);
  CHECK(at(-100) == doctest::Approx(std::exp(-100.0)).epsilon(0.05));  // subnormal
  CHECK(std::isnan(at(NAN)));
  float y[16];
  store(y, headrace::kernels::exp2(splat(-INFINITY)));
  CHECK(y[0] == 0);
  store(y, headrace::kernels::exp2(splat(NAN)));
  CHECK(std::isnan(y[0]));
}

TEST_CASE("sums of lanes follow the fixed tree") {
  std::mt19937 rng(3);
  std::uniform_real_distribution<float> any(-1, 1);
  for (int i = 0; i < 1000; ++i) {
    float x[16], t[16];
    for (float& v : x) v = any(rng);
    std::copy_n(x, 16, t);
    for (int width : {8, 4, 2, 1}) {
      for (int j = 0; j < width; ++j) t[j] += t[j + width];
    }
    REQUIRE(reduce_add(load(x)) == t[0]);
    REQUIRE(reduce_max(load(x)) == *std::max_element(x, x + 16));
  }
}

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/dev.h"

// The facade's bits and conversions against their definitions, spelled out anew.
namespace headrace::cuda {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};
constexpr Format kHalf{5, 10, true};
constexpr Format kBf16{8, 7, true};
constexpr Format kE4m3{4, 3, false};

double decode(const Format& format, uint32_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const uint32_t top = (1u << format.exponent_bits) - 1;
  const uint32_t exponent = bits >> format.mantissa_bits & top;
  const double sign = bits >> (format.exponent_bits + format.mantissa_bits) & 1 ? -1 : 1;
  const uint32_t all_ones = (1u << format.mantissa_bits) - 1;
  if (exponent == top && format.has_infinity) return mantissa ? std::nan("") : sign * INFINITY;
  if (exponent == top && mantissa == all_ones) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(mantissa, -format.mantissa_bits),
                           static_cast<int>(exponent) - bias);
}

// No neighbour of `bits` is nearer to x; of two as near, the even one was taken.
bool is_nearest(const Format& format, double x, uint32_t bits) {
  const double chosen = std::abs(decode(format, bits) - x);
  for (const uint32_t other : {bits - 1, bits + 1}) {
    const double value = decode(format, other);
    if (!std::isfinite(value) || std::signbit(value) != std::signbit(x)) continue;
    const double distance = std::abs(value - x);
    if (distance < chosen || (distance == chosen && bits % 2 == 1)) return false;
  }
  return true;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Of every size: exponents spread over [-span, span].
std::vector<float> spread(int span, size_t count) {
  std::mt19937 random(7);
  std::vector<float> values;
  while (values.size() < count) {
    const double mantissa = 1 + random() / 4294967296.0;
    const int exponent = static_cast<int>(random() % static_cast<unsigned>(2 * span)) - span;
    values.push_back(static_cast<float>(std::ldexp(random() % 2 ? mantissa : -mantissa, exponent)));
  }
  return values;
}

TEST_CASE("facade: every 16-bit float widens to its value") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    if (!same(half_to_float(word), decode(kHalf, bits))) FAIL(bits);
    if (!same(bf16_to_float(word), decode(kBf16, bits))) FAIL(bits);
  }
  const float2 halves = halves_to_floats(0xc0003c00);
  CHECK(halves.x == 1);
  CHECK(halves.y == -2);
  const float2 bf16s = bf16s_to_floats(0xc0003f80);
  CHECK(bf16s.x == 1);
  CHECK(bf16s.y == -2);
}

TEST_CASE("facade: floats round to the nearest half and bf16, ties to even") {
  for (const float x : spread(14, 20000)) {
    if (!is_nearest(kHalf, x, float_to_half(x))) FAIL(x);
    if (!is_nearest(kBf16, x, float_to_bf16(x))) FAIL(x);
  }
  for (const float x : spread(24, 5000)) {
    if (std::abs(x) < 65504 && !is_nearest(kHalf, x, float_to_half(x))) FAIL(x);
  }
  CHECK(float_to_half(1 + 0x1p-11f) == 0x3c00);  // half way: the even one
  CHECK(float_to_half(1 + 0x3p-11f) == 0x3c02);
  CHECK(float_to_half(65520) == 0x7c00);
  CHECK(float_to_half(65519) == 0x7bff);
  CHECK(float_to_half(0x1p-25f) == 0);
  CHECK(float_to_bf16(1 + 0x1p-8f) == 0x3f80);
  CHECK(float_to_bf16(1 + 0x3p-8f) == 0x3f82);
  CHECK(floats_to_halves(1, -2) == 0xc0003c00);
  CHECK(floats_to_bf16s(1, -2) == 0xc0003f80);
}

TEST_CASE("facade: fp8 both ways; what is too large becomes the largest") {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float2 both = e4m3s_to_floats(static_cast<uint16_t>(bits | 0x3800));
    if (!same(both.x, decode(kE4m3, bits))) FAIL(bits);
    CHECK(both.y == 1);
  }
  for (const float x : spread(10, 5000)) {
    const uint16_t both = floats_to_e4m3s(x, -1);
    CHECK((both >> 8) == 0xb8);
    const uint32_t bits = both & 0xff;
    if (std::abs(x) > 448) {
      CHECK(bits == (x < 0 ? 0xfe : 0x7e));
    } else if (!is_nearest(kE4m3, x, bits)) {
      FAIL(x);
    }
  }
}

TEST_CASE("facade: fused multiply-add of pairs rounds once") {
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {
    const auto one = [&] { return 0x3000u + random() % 0x1000 + (random() % 2 ? 0x8000 : 0); };
    const uint32_t a = one();
    const uint32_t b = one();
    const uint32_t c = one();
    const uint32_t result = fma_f16x2(a << 16, b << 16, c << 16);
    const double exact = decode(kHalf, a) * decode(kHalf, b) + decode(kHalf, c);
    if (exact != 0 && !is_nearest(kHalf, exact, result >> 16)) FAIL(exact);
    CHECK((result & 0xffff) == 0);
    // The same patterns as bf16 are small numbers there, none of them subnormal.
    const uint32_t wide = fma_bf16x2(a, b, c);
    const double exact_bf16 = decode(kBf16, a) * decode(kBf16, b) + decode(kBf16, c);
    if (exact_bf16 != 0 && !is_nearest(kBf16, exact_bf16, wide & 0xffff)) FAIL(exact_bf16);
  }
}

template <unsigned kTable>
void check_lop3(std::mt19937& random) {
  const auto a = static_cast<uint32_t>(random());
  const auto b = static_cast<uint32_t>(random());
  const auto c = static_cast<uint32_t>(random());
  uint32_t expected = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1);
    expected |= (kTable >> index & 1) << bit;
  }
  CHECK(lop3<kTable>(a, b, c) == expected);
}

TEST_CASE("facade: lop3 is the function of its table") {
  std::mt19937 random(3);
  check_lop3<0x00>(random);
  check_lop3<0x96>(random);
  check_lop3<0xca>(random);
  check_lop3<0x6a>(random);
  check_lop3<0xff>(random);
  // The table of a function is the function of these three.
  CHECK(lop3<(0xf0 & 0xcc) | 0xaa>(0x12345678, 0x0f0f0f0f, 0x80000001) ==
        ((0x12345678 & 0x0f0f0f0f) | 0x80000001));
}

TEST_CASE("facade: prmt picks bytes, or spreads their signs") {
  const uint32_t a = 0x83726150;
  const uint32_t b = 0x1ffedcba;
  CHECK(prmt(a, b, 0x3210) == a);
  CHECK(prmt(a, b, 0x7654) == b);
  CHECK(prmt(a, b, 0x5410) == 0xdcba6150);
  CHECK(prmt(a, b, 0x0246) == 0x5072bafe);
  CHECK(prmt(a, b, 0xfb89) == 0x00ff0000);  // the signs of 1f, 83, 50, 61
}

TEST_CASE("facade: a float's bits are its own, both ways") {
  CHECK(float_bits(-1.5f) == 0xbfc00000);
  CHECK(float_bits(-0.0f) == 0x80000000);
  CHECK(float_bits(bits_float(0x7fc12345)) == 0x7fc12345);
  CHECK(bits_float(0x00000001) == 0x1p-149f);
}

TEST_CASE("facade: approximations are near") {
  for (float x = -20; x < 20; x += 0.37f) {
    CHECK(fast_exp2(x) == doctest::Approx(std::pow(2.0, static_cast<double>(x))).epsilon(1e-6));
  }
  for (float x = 1e-6f; x < 1e6f; x *= 3) {
    CHECK(fast_rsqrt(x) == doctest::Approx(1 / std::sqrt(static_cast<double>(x))).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace headrace::cuda

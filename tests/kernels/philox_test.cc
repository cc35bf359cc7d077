#include "kernels/philox.h"

#include <doctest/doctest.h>

using headrace::kernels::philox;
using headrace::kernels::uniform;
using Words = std::array<uint32_t, 4>;

TEST_CASE("philox gives the known answers of its authors") {
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the uniform is made of the upper words and stays below one") {
  // Words 0 and 1 of the all-zero answer above.
  CHECK(uniform(0, 0) == double(0x6627e8d5e169c58d >> 11) / double(uint64_t{1} << 53));
  double sum = 0;
  for (uint32_t i = 0; i < 10000; ++i) {
    const double u = uniform(7, i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
  }
  CHECK(sum / 10000 == doctest::Approx(0.5).epsilon(0.02));
  CHECK(uniform(1, 0) != uniform(2, 0));
  CHECK(uniform(1, 0) != uniform(uint64_t{1} << 32 | 1, 0));  // all 64 bits of the seed count
}

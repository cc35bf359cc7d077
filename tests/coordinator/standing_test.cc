#include "coordinator/standing.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {

TEST_CASE("who took an answer is known, for as many as it took") {
  Standing s;
  CHECK_FALSE(s.ask());
  s.took();
  CHECK(s.ask());
  CHECK_FALSE(s.ask());  // one answer is worth one that is unheard
  s.took();
  s.took();
  for (int i = 0; i < 3; ++i) CHECK(s.ask());
  CHECK_FALSE(s.ask());
}

TEST_CASE("what was made and not taken halves the trust; what never came costs nothing") {
  Standing s;
  for (int i = 0; i < 8; ++i) {
    s.ask();
    s.took();
  }
  const auto known = [&] {
    int n = 0, asked = 1;
    while (s.ask()) ++n, ++asked;
    while (asked-- > 0) s.over(false);
    return n;
  };
  CHECK(known() == 8);
  CHECK(known() == 8);
  s.ask();
  s.over(true);
  CHECK(known() == 4);
  for (int i = 0; i < 3; ++i) {
    s.ask();
    s.over(true);
  }
  CHECK(known() == 0);
}

TEST_CASE("trust has a limit") {
  Standing s;
  for (uint32_t i = 0; i < 2 * kTrustMax; ++i) {
    s.ask();
    s.took();
  }
  for (uint32_t i = 0; i < kTrustMax; ++i) REQUIRE(s.ask());
  CHECK_FALSE(s.ask());
}

}  // namespace headrace::coordinator

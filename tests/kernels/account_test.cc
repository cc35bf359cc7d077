#include "kernels/account.h"

#include <doctest/doctest.h>

#include <string>

using headrace::kernels::Accounts;
using headrace::kernels::Cost;

TEST_CASE("accounts add up by operation and begin anew once taken") {
  Accounts accounts;
  CHECK(accounts.take().empty());
  accounts.add("a", Cost{1, 2, 3, 4}, 0.5);
  accounts.add("b", Cost{10, 0, 0, 0}, 1);
  accounts.add(std::string("a").c_str(), Cost{1, 1, 1, 1}, 0.25);  // by text, not by pointer
  const auto taken = accounts.take();
  REQUIRE(taken.size() == 2);
  CHECK(std::string(taken[0].op) == "a");
  CHECK(taken[0].cost == Cost{2, 3, 4, 5});
  CHECK(taken[0].seconds == 0.75);
  CHECK(taken[0].runs == 2);
  CHECK(taken[1].cost.bytes() == 10);
  CHECK(accounts.take().empty());
}

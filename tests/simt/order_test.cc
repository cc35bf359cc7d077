#include "tests/simt/order.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>
#include <stdexcept>

#include "tests/simt/sanitizers.h"

namespace headrace::simt {
namespace {

using Threads = Order::Threads;

TEST_CASE("order: its words name it") {
  CHECK(to_string({Threads::kRandom, false, true, false, 7}) == "random:7 round-robin late after");
  for (const Order& order : orders()) CHECK(parse_order(to_string(order)) == order);
  CHECK(parse_order("descending eager") == Order{Threads::kDescending, true, false, true, 1});
  CHECK_FALSE(parse_order("sideways"));
  CHECK_FALSE(parse_order("random:x"));
  CHECK_FALSE(parse_order("random:7x"));
}

TEST_CASE("order: a plain build goes through all, a sanitizer's through two") {
  std::set<std::string> names;
  for (const Order& order : orders()) names.insert(to_string(order));
  CHECK(names.size() == (sanitizers::present() ? 2 : 12));
}

TEST_CASE("order: the environment picks one") {
  setenv("HEADRACE_SIMT_ORDER", "random:3 round-robin", 1);
  const auto picked = orders();
  setenv("HEADRACE_SIMT_ORDER", "random:3 sideways", 1);
  CHECK_THROWS_WITH_AS(orders(),
                       "HEADRACE_SIMT_ORDER='random:3 sideways': takes ascending, descending, "
                       "random:<seed>, run-ahead, round-robin, late, eager, early, after",
                       std::invalid_argument);
  unsetenv("HEADRACE_SIMT_ORDER");
  REQUIRE(picked.size() == 1);
  CHECK(picked[0] == Order{Threads::kRandom, false, true, true, 3});
}

}  // namespace
}  // namespace headrace::simt

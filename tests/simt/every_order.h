#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "tests/simt/launch.h"
#include "tests/simt/order.h"

namespace headrace::simt {

// Runs `test` in each order of this build; a failure names the order, which
// HEADRACE_SIMT_ORDER='...' then picks.
template <class Test>
void in_every_order(Test test) {
  for (const Order& order : orders()) {
    const std::string name = to_string(order);
    CAPTURE(name);
    set_order(order);
    test();
  }
  set_order({});
}

// Its words, or nothing.
inline std::string text(const std::optional<Fault>& fault) { return fault ? fault->what : ""; }

}  // namespace headrace::simt

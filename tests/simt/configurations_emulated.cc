#include <doctest/doctest.h>

#include "tests/simt/configurations.h"
#include "tests/simt/order.h"

namespace headrace::simt {

void each_configuration(const std::function<void()>& test) {
  const Order before = current_order();
  for (const Order& order : orders()) {
    set_order(order);
    const std::string name = to_string(order);
    INFO("order: " << name);
    test();
  }
  set_order(before);
}

}  // namespace headrace::simt

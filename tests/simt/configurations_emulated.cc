#include <doctest/doctest.h>

#include "tests/simt/configurations.h"
#include "tests/simt/cudart/control.h"
#include "tests/simt/order.h"

namespace headrace::simt {
namespace {

// Says what the emulator found wrong, and leaves a fresh device to the next test: a kernel's fault
// would stay.
void report_and_reset() {
  for (const std::string& report : take_reports()) MESSAGE(report);
  reset();
}

}  // namespace

void each_configuration(const std::function<void()>& test) {
  const Order before = current_order();
  for (const Order& order : orders()) {
    set_order(order);
    const std::string name = to_string(order);
    INFO("order: " << name);
    try {
      test();
    } catch (...) {
      set_order(before);
      report_and_reset();
      throw;
    }
  }
  set_order(before);
}

}  // namespace headrace::simt

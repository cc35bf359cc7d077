#pragma once

#include <vector>

#include "kernels/device.h"

namespace headrace::kernels {

// What a device's operations have cost, by operation. Plain memory: used by the device's thread.
class Accounts {
 public:
  void add(const char* op, const Cost& cost, double seconds);
  // Those that ran since the last call.
  std::vector<OpAccount> take();

 private:
  std::vector<OpAccount> accounts_;
};

}  // namespace headrace::kernels

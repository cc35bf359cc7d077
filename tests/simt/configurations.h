#pragma once

#include <functional>

namespace headrace::simt {

// Runs a kernel's test once in every way this binary can: in each of the emulator's orders, or once
// on a GPU (configurations_emulated.cc, configurations_real.cc).
void each_configuration(const std::function<void()>& test);

}  // namespace headrace::simt

#pragma once

namespace headrace::kernels {

// Prints file, line and condition to stderr, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace headrace::kernels

// Our own mistake, never reachable by input: always on, prints and aborts. The kernels' own, since
// they know nothing of protocol/.
#define KERNELS_CHECK(condition) \
  (static_cast<bool>(condition)  \
       ? static_cast<void>(0)    \
       : ::headrace::kernels::check_failed(__FILE__, __LINE__, #condition))

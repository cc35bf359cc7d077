#pragma once

namespace headrace {

// Prints file, line and condition to stderr, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace headrace

// Our own mistake, never reachable by input: always on, prints and aborts. Headers use the long
// name, since a test framework may own the short one.
#define HEADRACE_CHECK(condition)                      \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::headrace::check_failed(__FILE__, __LINE__, #condition))
#ifndef CHECK
#define CHECK(condition) HEADRACE_CHECK(condition)
#endif

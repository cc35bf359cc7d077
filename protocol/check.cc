#include "protocol/check.h"

#include <cstdio>
#include <cstdlib>

namespace headrace {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace headrace

#include "protocol/messages.h"

#include <doctest/doctest.h>

#include <string>

namespace headrace {
namespace {

TEST_CASE("roles by name") {
  CHECK(std::string(name(Role::kPrefill)) == "prefill");
  CHECK(std::string(name(Role::kDecode)) == "decode");
  CHECK(std::string(name(Role::kBoth)) == "both");
  CHECK(std::string(name(static_cast<Role>(9))) == "unknown");
}

}  // namespace
}  // namespace headrace

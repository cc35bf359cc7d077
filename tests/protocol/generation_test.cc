#include "protocol/generation.h"

#include <doctest/doctest.h>

#include <string>

namespace headrace {
namespace {

TEST_CASE("finishes by name") {
  CHECK(std::string(name(Finish::kNone)) == "none");
  CHECK(std::string(name(Finish::kStop)) == "stop");
  CHECK(std::string(name(Finish::kLength)) == "length");
  CHECK(std::string(name(Finish::kCancelled)) == "cancelled");
  CHECK(std::string(name(Finish::kError)) == "error");
  CHECK(std::string(name(static_cast<Finish>(77))) == "unknown");
}

}  // namespace
}  // namespace headrace
